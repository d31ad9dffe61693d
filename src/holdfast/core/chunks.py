"""The chunks of a job's stream: what a reader gets, from the pieces that are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .errors import InvalidJob
from .job import UNDECODABLE
from .operations import Printed

_decode = msgspec.json.Decoder().decode


class Chunk(msgspec.Struct, frozen=True):
    """A chunk that a job has emitted."""

    value: Any
    position: int
    """Where the next chunk begins, in bytes over all claims of the job: a reader continues after this chunk there."""
    fence: int
    """The fence of the claim that emitted it."""
    attempt: int | None = None
    """The number of that claim's attempt; None if the job's history no longer has it."""
    first: bool = False
    """Its claim begins here: what was emitted before belongs to earlier attempts."""
    missed: int = 0
    """Bytes of chunks before this one that are no longer stored."""


class Chunks:
    """Splits the pieces of the stream of job `id`, in their order, into chunks from a position on."""

    def __init__(self, id: str, position: int = 0) -> None:
        self.position = position
        """The end of the chunks so far."""
        self._id = id
        self._fence: int | None = None

    def add(self, piece: Printed, attempts: dict[int, int]) -> Iterator[Chunk]:
        """The chunks of the next piece, up to a damaged one; `attempts` are the numbers of the attempts, by fence."""
        seen, missed = max(0, self.position - piece.position), max(0, piece.position - self.position)
        if seen and seen <= len(piece.data) and piece.data[seen - 1 : seen] != b"\n":
            raise InvalidJob(
                f"the stream of job {self._id!r} has no chunk at position {self.position}: continue at the `position`"
                " of a chunk of this job, or at 0"
            )
        first, self._fence, position = not seen and piece.fence != self._fence, piece.fence, piece.position + seen
        for line in piece.data[seen:].splitlines(keepends=True):
            position += len(line)
            chunk = Chunk(self._value(line, position), position, piece.fence, attempts.get(piece.fence), first, missed)
            self.position = position
            yield chunk
            first, missed = False, 0

    def _value(self, line: bytes, position: int) -> Any:
        try:
            return _decode(line)
        except UNDECODABLE as error:
            raise InvalidJob(
                f"a chunk of job {self._id!r} cannot be decoded, because it is damaged ({error}): continue at position"
                f" {position}"
            ) from None
