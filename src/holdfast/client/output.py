"""Reads and follows the output of a job, from the store, so from any machine that reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from ..core.errors import JobNotFound
from ..core.job import TERMINAL, Record
from ..core.lifecycle import number_of
from ..core.log_lines import Lines, LogLine
from ..core.operations import Printed

OUTPUT_EVERY = 0.2
"""Seconds between two reads for more output."""


class Reader(Protocol):
    """What is read of a job."""

    def record(self, id: str) -> Coroutine[Any, Any, Record]: ...

    def output(self, id: str, position: int = 0) -> Coroutine[Any, Any, list[Printed]]: ...


async def follow_output(reader: Reader, id: str, *, follow: bool) -> AsyncIterator[Printed]:
    """The stored output, chunk by chunk; with `follow`, until the job has ended, or is removed at its end."""
    position, known = 0, False
    while True:
        try:
            ended = not follow or (await reader.record(id)).state in TERMINAL
        except JobNotFound:
            if known:
                return
            raise
        known = True
        pieces = await reader.output(id, position)
        for piece in pieces:
            seen = max(0, position - piece.position)
            yield Printed(piece.position + seen, piece.fence, piece.data[seen:]) if seen else piece
            position = piece.position + len(piece.data)
        if not pieces and ended:
            return
        if not pieces:
            await asyncio.sleep(OUTPUT_EVERY)


async def follow_lines(reader: Reader, id: str, *, follow: bool) -> AsyncIterator[list[LogLine]]:
    """The stored lines, as `follow_output`, several at a time; JobNotFound at once for an unknown id."""
    attempts, lines = attempts_of(await reader.record(id)), Lines()
    async for piece in follow_output(reader, id, follow=follow):
        if piece.fence not in attempts:
            with suppress(JobNotFound):  # removed at its end
                attempts |= attempts_of(await reader.record(id))
        yield with_attempts(lines.add(piece), attempts)
    yield with_attempts(lines.rest(), attempts)


def attempts_of(record: Record) -> dict[int, int]:
    """The numbers of a job's attempts, by fence."""
    return {record.fence: record.attempt} | {line.fence: number_of(line) for line in record.history}


def with_attempts(lines: Iterable[LogLine], attempts: dict[int, int]) -> list[LogLine]:
    """The lines with the numbers of their attempts."""
    return [msgspec.structs.replace(line, attempt=attempts.get(line.fence)) for line in lines]
