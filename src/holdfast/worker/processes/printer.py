"""Reads what the processes of a job print: a thread takes it from a pipe as fast as it comes."""

from __future__ import annotations

import asyncio
import os
import select
import threading

from .output import OutputWriter

READ = 1 << 16
"""Bytes of one read: the capacity of a pipe."""
MAX_REMAINING = 1 << 22
"""Bytes that are read, at most, after the child has ended: more than the capacity of a pipe."""


class Printer:
    """Reads a pipe on its own thread, and passes its data to a writer. `fd` is the child's standard output.

    It reads before the child is started, so that a child never runs without it.
    """

    def __init__(self, writer: OutputWriter) -> None:
        self._writer = writer
        self._reading, self.fd = os.pipe()
        self._stop_reading, self._stop_writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._thread = threading.Thread(target=self._drain, name="holdfast-output", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            for fd in (self._reading, self.fd, self._stop_reading, self._stop_writing):
                os.close(fd)
            raise

    def handed_over(self) -> None:
        """The child has its end of the pipe: close ours."""
        os.close(self.fd)
        self.fd = -1

    def _drain(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN | select.POLLHUP)
        poll.register(self._stop_reading, select.POLLIN | select.POLLHUP)
        left = MAX_REMAINING
        while left > 0:
            ready = {fd for fd, _ in poll.poll()}
            data = os.read(self._reading, READ) if self._reading in ready else None
            if data == b"" or (data is None and self._stop_reading in ready):
                return
            if self._stop_reading in ready:
                left -= READ  # a process that escaped may still print: do not read for ever
            if data:
                self._writer.put(data)

    async def end(self) -> None:
        """The child has ended, or was never started: read the rest of the pipe."""
        if self.fd >= 0:
            os.close(self.fd)
        os.close(self._stop_writing)
        await asyncio.to_thread(self._thread.join)
        os.close(self._reading)
        os.close(self._stop_reading)
