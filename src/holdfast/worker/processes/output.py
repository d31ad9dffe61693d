"""Output of a job is written to the store a few times a second.

The job never waits for the store: output that comes faster than the store accepts it is dropped, the oldest first.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ...core.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from ...core.operations import Output
from ...tasks.claim_notes import on_loop

logger = logging.getLogger("holdfast")
OUTPUT_PAUSE = 0.2
"""Seconds from the first output that is not written yet until it is: that of a short run is written with its end."""
WRITE_TRIES = 3
"""Attempts to write one piece of output that the store refuses, or after the run; after that the piece is lost."""
LONGEST_OUTPUT_PAUSE = 1.0
"""Seconds between two attempts, at most."""
WriteNote = Callable[..., Awaitable[bool]]


class RingBuffer:
    """The newest `limit` bytes that have not been written yet. Thread-safe.

    A signal handler or a finalizer may print while its thread is in one of the methods: the lock is reentrant, and what
    it prints waits in `_new` until that method is done.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.RLock()
        self._new: deque[bytes] = deque()
        self._entered = False
        """Whether a method changes the fields below."""
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._at = 0

    def __bool__(self) -> bool:
        return bool(self._pieces or self._new)

    def put(self, data: bytes) -> bool:
        """Add output; True if the buffer was empty before."""
        with self._lock:
            self._new.append(data)
            if self._entered:
                return False
            first = not self._pieces
            self._add_new()
            return first

    def _add_new(self) -> None:
        self._entered = True
        try:
            while self._new:
                self._pieces.append(self._new.popleft())
                self._size += len(self._pieces[-1])
                while self._size > self._limit and len(self._pieces) > 1:
                    gone = len(self._pieces.popleft())
                    self._size -= gone
                    self._at += gone
                if self._size > self._limit:
                    rest = self._pieces[0][-self._limit :]
                    self._at += self._size - len(rest)
                    self._pieces[0], self._size = rest, len(rest)
        finally:  # the handler may have raised
            self._entered = False

    def take(self) -> tuple[int, bytes] | None:
        """Remove and return everything, with its position in the output; None if empty."""
        with self._lock:
            self._add_new()
            if not self._pieces:
                return None
            self._entered = True
            try:
                at, data = self._at, b"".join(self._pieces)
                self._pieces.clear()
                self._at, self._size = at + self._size, 0
            finally:
                self._entered = False
            return at, data


class OutputWriter:
    """Writes the output of one claim as notes, on the loop. `write_note` takes the fields of a note."""

    def __init__(self, job: str, write_note: WriteNote, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self._job = job
        self._write_note = write_note
        self._limit = limit
        self._loop = loop
        self._context = contextvars.Context()
        """Empty: what a driver logs while it writes is no output of the job."""
        self._buffer = RingBuffer(limit)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._unanswered: list[Output] = []
        """Taken from the buffer, and perhaps not stored yet."""
        self._finishing = False
        """The run has ended, and waits for its output to be written."""
        self._ended = False
        """Nothing is written any more: the run or its claim has ended."""

    def put(self, data: bytes) -> None:
        """Add output. May be called from any thread."""
        if not self._buffer.put(data):
            return
        if on_loop(self._loop):
            self._later()
        else:
            with suppress(RuntimeError):  # the loop is closed: nothing is written any more, but a child may still print
                self._loop.call_soon_threadsafe(self._later, context=self._context)

    def _later(self) -> None:
        if self._timer is None and self._writing is None and not self._ended:
            self._timer = self._loop.call_later(OUTPUT_PAUSE, self._start, context=self._context)

    def _start(self) -> None:
        self._timer = None
        self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        for piece in self.pending():
            await self._put(output=piece)
            self._unanswered.remove(piece)
        self._writing = None
        if self._buffer:
            self._later()

    async def _put(self, **note: Any) -> None:
        """Write a note. While the job runs, it is repeated until the store answers, and newer output waits."""
        tries = 0
        while not self._ended:
            try:
                if not await self._write_note(**note):
                    self._ended = True
            except HoldfastError as error:
                tries += 1
                away = isinstance(error, StoreUnavailable | OutcomeUnknown) and not self._finishing
                lost = tries >= WRITE_TRIES and not away
                if not self._ended and (lost or tries == 1):
                    what = "this part is lost" if lost else "it is repeated"
                    logger.warning("job %s: writing its output to the store failed, %s: %s", self._job, what, error)
                if lost:
                    return
                await asyncio.sleep(min(OUTPUT_PAUSE * tries, LONGEST_OUTPUT_PAUSE))
            else:
                return

    def pending(self) -> list[Output]:
        """What is to be written before the outcome of the run.

        A piece whose write is not answered is among it: a store keeps a piece that it gets twice once.
        """
        if (rest := self._buffer.take()) is not None:
            self._unanswered.append(Output(*rest, self._limit))
        return list(self._unanswered)

    def end(self) -> list[Output]:
        """The run has ended: stop, and return what is to be written before its outcome."""
        if self._ended:
            return []
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        return self.pending()

    async def finish(self, **also: Any) -> None:
        """Write the rest now, together with the fields of `also`."""
        self._finishing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        if self._ended:
            return
        for piece in self.pending():
            also["output"] = piece
        if also:
            await self._put(**also)
        self._ended = True
