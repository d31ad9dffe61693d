"""Writes what a running job emits to its stream: at once if no write is in flight, else with the next piece.

A piece has whole chunks, each a line of JSON. Chunks keep their order, and pieces are written one after the other under
the claim: a store keeps a piece that it gets twice once.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from ..core.errors import HoldfastError, LeaseLost
from ..core.job import Record
from ..core.operations import Note, Output

logger = logging.getLogger("holdfast")
MAX_PIECE = 1 << 16
"""Bytes of one piece; a longer chunk is a separate piece."""
MAX_UNWRITTEN = 1 << 18
"""Bytes that wait to be written, from which on `put` waits."""
STREAM_PAUSE = 0.01
"""Seconds between two writes of one stream: chunks in between share a piece."""
REPEAT_PAUSE = 0.5
"""Seconds until a failed write is repeated."""


class StreamWriter:
    """The stream of one claim, on the loop that writes. The newest `limit` bytes of the job's stream are kept."""

    def __init__(self, record: Record, write_note: Callable[[Note], Awaitable[bool]], limit: int) -> None:
        self._record = record
        self._write_note = write_note
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._at = 0
        """The offset of the next piece in the stream of this claim."""
        self._unanswered: list[Output] = []
        """Taken from the chunks, and perhaps not stored yet."""
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._ended = False

    async def put(self, chunk: bytes) -> None:
        """Add a chunk, a line of JSON. Waits while too much is unwritten; LeaseLost if the claim has ended."""
        async with self._turn:  # first come, first served: chunks keep their order
            while self._size > MAX_UNWRITTEN and not self._ended:
                self._room.clear()
                await self._room.wait()
            if self._ended:
                raise LeaseLost(self._record.id, self._record.fence)
            self._chunks.append(chunk)
            self._size += len(chunk)
            if self._writing is None:
                # In an empty context: what a driver logs while it writes is no output of the job.
                self._writing = asyncio.get_running_loop().create_task(self._write(), context=contextvars.Context())

    def pending(self) -> list[Note]:
        """What is to be written before the outcome of the run, also that whose write is not answered."""
        while self._chunks:
            self._unanswered.append(self._take())
        return [self._note(piece) for piece in self._unanswered]

    def end(self) -> list[Note]:
        """The run has ended: `put` raises, and what is left is to be written with the outcome."""
        lost, self._ended = self._ended, True
        self._room.set()
        if self._writing is not None:
            self._writing.cancel()
        return [] if lost else self.pending()

    async def finish(self) -> None:
        """Write all that is left."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        failed = False
        while (self._chunks or self._unanswered) and not self._ended:
            if not self._unanswered:
                self._unanswered.append(self._take())
            pause, piece = STREAM_PAUSE, self._unanswered[0]
            try:
                if not await self._write_note(self._note(piece)):
                    self._ended = True
                self._unanswered.remove(piece)
                failed = False
            except HoldfastError as error:
                if not failed:
                    logger.warning(
                        "job %s: writing to its stream failed, and is repeated until it works or the run ends: %s",
                        self._record.id,
                        error,
                    )
                pause, failed = REPEAT_PAUSE, True
            self._room.set()
            await asyncio.sleep(pause)
        self._writing = None

    def _take(self) -> Output:
        """The next piece: as many chunks as fit, at least one."""
        data = bytearray(self._chunks.popleft())
        while self._chunks and len(data) + len(self._chunks[0]) <= MAX_PIECE:
            data += self._chunks.popleft()
        piece = Output(self._at, bytes(data), self._limit, stream=True)
        self._at += len(data)
        self._size -= len(data)
        return piece

    def _note(self, piece: Output) -> Note:
        record = self._record
        return Note(record.id, record.seq, record.fence, record.token, output=piece)
