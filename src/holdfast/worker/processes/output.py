"""Output of a job: a thread reads it as fast as it comes, and it is written to the store a few times a second.

The job never waits for the store: output that comes faster than the store accepts it is dropped, the oldest first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from ...core.errors import HoldfastError
from ...core.operations import Output

logger = logging.getLogger("holdfast")
READ = 1 << 16
"""Bytes of one read: the capacity of a pipe."""
OUTPUT_PAUSE = 0.2
"""Seconds between two writes of one job's output."""
WRITE_TRIES = 3
"""Attempts to write one piece of output; after that the piece is lost."""
MAX_REMAINING = 1 << 22
"""Bytes that are read, at most, after the child has ended: more than the capacity of a pipe."""
WriteNote = Callable[..., Awaitable[bool]]


class RingBuffer:
    """The newest `limit` bytes that have not been written yet. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._at = 0

    def put(self, data: bytes) -> bool:
        """Add output; True if the buffer was empty before."""
        with self._lock:
            first = not self._pieces
            self._pieces.append(data)
            self._size += len(data)
            while self._size > self._limit and len(self._pieces) > 1:
                gone = len(self._pieces.popleft())
                self._size -= gone
                self._at += gone
            if self._size > self._limit:
                rest = self._pieces[0][-self._limit :]
                self._at += self._size - len(rest)
                self._pieces[0], self._size = rest, len(rest)
            return first

    def take(self) -> tuple[int, bytes] | None:
        """Remove and return everything, with its position in the output; None if empty."""
        with self._lock:
            if not self._pieces:
                return None
            at, data = self._at, b"".join(self._pieces)
            self._pieces.clear()
            self._at, self._size = at + self._size, 0
            return at, data


class Printer:
    """Reads a pipe on its own thread, and writes its data as notes. `fd` is the child's standard output."""

    def __init__(self, job: str, write_note: WriteNote, limit: int) -> None:
        self._job = job
        self._write_note = write_note
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._buffer = RingBuffer(limit)
        self._reading, self.fd = os.pipe()
        self._stop_reading, self._stop_writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._writing: asyncio.Task[None] | None = None
        self._lost = False
        self._pausing = self._loop.create_future()
        self._thread = threading.Thread(target=self._drain, name="holdfast-output", daemon=True)

    def start(self) -> None:
        """The child has its end of the pipe: close ours and begin to read."""
        os.close(self.fd)
        self._thread.start()

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
            if data and self._buffer.put(data):
                try:
                    self._loop.call_soon_threadsafe(self._soon)
                except RuntimeError:  # the loop is closed: nothing is written any more, but the child may still print
                    continue

    def _soon(self) -> None:
        if self._writing is None and not self._lost:
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        while not self._lost and (piece := self._buffer.take()) is not None:
            await self._put(output=Output(*piece, self._limit))
            await asyncio.wait([self._pausing], timeout=OUTPUT_PAUSE)
        self._writing = None

    async def _put(self, **note: Any) -> None:
        for number in range(WRITE_TRIES):
            try:
                self._lost = not await self._write_note(**note)
            except HoldfastError as error:
                logger.warning(
                    "job %s: writing its output to the store failed (try %d of %d; then this part is lost): %s",
                    self._job,
                    number + 1,
                    WRITE_TRIES,
                    error,
                )
                await asyncio.sleep(OUTPUT_PAUSE * (number + 1))
            else:
                return

    async def finish(self, **also: Any) -> None:
        """The child has ended: read the rest of the pipe, and write it together with the fields of `also`."""
        os.close(self._stop_writing)
        await asyncio.to_thread(self._thread.join)
        os.close(self._reading)
        os.close(self._stop_reading)
        self._pausing.set_result(None)
        if self._writing is not None:
            await self._writing
        if (piece := self._buffer.take()) is not None:
            also["output"] = Output(*piece, self._limit)
        if also and not self._lost:
            await self._put(**also)
