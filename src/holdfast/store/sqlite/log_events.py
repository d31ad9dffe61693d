"""Linux only: waits until any process writes to the write-ahead log (inotify), which every commit does first.

It needs no file, socket or help of the writer. So it also sees commits of the user's own connections, of other users,
and of containers that share the file.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from contextlib import suppress

_MODIFY, _IGNORED = 0x0002, 0x8000
"""Masks of inotify: a write to the file; the end of the watch, because the file was deleted."""
_HEADER = 16
"""Bytes of an event of a file: watch, mask, cookie, and the length of a name, which is 0."""


class LogEvents:
    """Writes to one file. Used by one thread; `wake` may be called by others."""

    def __init__(self, inotify: int) -> None:
        self._inotify = inotify
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._poll = select.poll()
        self._poll.register(inotify, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._closing = threading.Lock()
        self._closed = False
        self.ended = False
        """The file was deleted: there will be no more events."""

    @classmethod
    def of(cls, path: str) -> LogEvents | None:
        """The writes to a file; None where they cannot be watched."""
        if sys.platform != "linux":
            return None
        import ctypes

        try:
            libc = ctypes.CDLL(None)
            inotify = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            if inotify < 0:
                return None
            if libc.inotify_add_watch(inotify, os.fsencode(path), _MODIFY) < 0:
                os.close(inotify)
                return None
        except (AttributeError, OSError):  # a C library without inotify
            return None
        try:
            return cls(inotify)
        except OSError:  # no free descriptor
            os.close(inotify)
            return None

    def wait(self, timeout: float) -> bool:
        """Wait for a write, at most `timeout` seconds; returns whether there was one since the last call."""
        if not self._poll.poll(timeout * 1000):
            return False
        _drain(self._woken)
        events = _drain(self._inotify)
        masks = [int.from_bytes(events[at + 4 : at + 8], sys.byteorder) for at in range(0, len(events), _HEADER)]
        self.ended = self.ended or any(mask & _IGNORED for mask in masks)
        return any(mask & ~_IGNORED for mask in masks)  # an overflow of the queue counts as a write

    def wake(self) -> None:
        """End the present or next `wait` at once."""
        with self._closing:
            if not self._closed:
                with suppress(BlockingIOError):  # full: it ends anyway
                    os.write(self._wake, b".")

    def close(self) -> None:
        with self._closing:
            self.abandon()

    def abandon(self) -> None:
        """As `close`, in a forked child, where another thread may have held the lock."""
        self._closed = True
        for descriptor in (self._inotify, self._woken, self._wake):
            os.close(descriptor)


def _drain(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except BlockingIOError:
        return b""
