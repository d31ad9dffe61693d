"""Follows the stream and the progress of a job, from the store, so from any machine that reaches it.

A reader waits on a listener, which is notified soon after each write; if notifications fail, it polls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..core.chunks import Chunk, Chunks
from ..core.errors import InvalidJob, JobNotFound
from ..core.job import TERMINAL, Record
from ..core.operations import Printed
from ..views import Progress, progress_of
from .output import attempts_of

if TYPE_CHECKING:
    from ..store.protocol import Listener
    from .session import Session


class Watch:
    """The listener of one reader for the notes and the end of a job, kept between its calls."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._listener: Listener | None = None

    def listener(self, session: Session, id: str) -> Listener:
        """The listener on this session's loop; a new one if the app has moved to another."""
        if self._listener is None or self._session is not session:
            self.close()
            self._session, self._listener = session, session.store.listen([f"note/{id}", f"job/{id}"])
        return self._listener

    def close(self) -> None:
        """Close the listener, from any thread."""
        if self._session is not None and self._listener is not None:
            with suppress(RuntimeError):  # its loop was closed
                self._session.loop.call_soon_threadsafe(self._listener.close)
            self._listener = None


class NoteReader(Protocol):
    """What is read of a job."""

    def record(self, id: str) -> Coroutine[Any, Any, Record]: ...

    def stream_pieces(self, id: str, position: int, watch: Watch | None) -> Coroutine[Any, Any, list[Printed]]: ...

    def progressed(self, id: str, seen: bytes | None, watch: Watch) -> Coroutine[Any, Any, Record]: ...


async def follow_chunks(reader: NoteReader, id: str, position: int, *, follow: bool) -> AsyncGenerator[list[Chunk]]:
    """The chunks after a position, several at a time; with `follow`, until the job has ended, or is removed at its end.

    JobNotFound at once for an unknown id.
    """
    attempts, chunks, watch = attempts_of(await reader.record(id)), Chunks(id, position), Watch()

    async def split(pieces: list[Printed]) -> list[Chunk]:
        if any(piece.fence not in attempts for piece in pieces):
            with suppress(JobNotFound):
                attempts.update(attempts_of(await reader.record(id)))
        found: list[Chunk] = []
        try:
            for piece in pieces:
                found.extend(chunks.add(piece, attempts))
        except InvalidJob:
            if not found:  # else the next read raises it: what was emitted before a damaged chunk comes first
                raise
        return found

    try:
        # The piece before the position shows whether another attempt begins there.
        if position and (page := await split(await reader.stream_pieces(id, position - 1, None))):
            yield page
        with suppress(JobNotFound):
            while pieces := await reader.stream_pieces(id, chunks.position, watch if follow else None):
                yield await split(pieces)
    finally:
        watch.close()


async def follow_progress(reader: NoteReader, id: str) -> AsyncGenerator[Progress]:
    """The progress of a job, whenever it changes, until the job has ended, or is removed at its end.

    JobNotFound at once for an unknown id.
    """
    watch, seen, known = Watch(), None, False
    try:
        while True:
            try:
                record = await reader.progressed(id, seen, watch)
            except JobNotFound:
                if known:
                    return
                raise
            known = True
            if record.progress != seen:
                seen = record.progress
                if (progress := progress_of(seen)) is not None:
                    yield progress
            if record.state in TERMINAL:
                return
    finally:
        watch.close()
