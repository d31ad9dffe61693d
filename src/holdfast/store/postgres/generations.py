"""Generations: opens another one when claims have to skip many dead rows, and retires empty ones.

See holdfast.generation in `migrations/0001_initial/01_tables.sql` for what they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from . import sql
from .pool import Link

logger = logging.getLogger("holdfast")

ROTATION_PAUSE = 0.05
"""Seconds between two rotations, so that dead rows that stay cost little."""

Run = Callable[[Callable[[Link], Awaitable[Any]]], Awaitable[Any]]


class Generations:
    """Rotates the generations in the background, one step at a time, without delaying callers."""

    def __init__(self, shown: str, say: Callable[[str], str], run: Run) -> None:
        self._shown = shown
        self._rotate_statement, self._retire_statement = say(sql.ROTATE), say(sql.RETIRE)
        self._run = run
        self._rotating: asyncio.Task[None] | None = None
        self._queues: set[str] = set()
        self._several = True

    def worn(self, queues: Iterable[str]) -> None:
        """Start a rotation: a claim on these queues has read far more index entries than it took jobs."""
        self._queues.update(queues)
        if self._rotating is None:
            self._rotating = asyncio.get_running_loop().create_task(self._rotate())

    async def tidy(self) -> None:
        """Move jobs out of old generations, if there are several."""
        if self._several and self._rotating is None:
            await self._step()

    async def _rotate(self) -> None:
        try:
            while await self._step():
                pass
            await asyncio.sleep(ROTATION_PAUSE)
        except Exception as error:  # noqa: BLE001  # claims continue, only slower; the next one starts it again
            logger.debug(
                "%s: dead rows slow down claims; the switch to a new table of jobs failed, retrying: %s",
                self._shown,
                error,
            )
        finally:
            self._rotating = None

    async def _step(self) -> bool:
        queues, self._queues = sorted(self._queues), set[str]()
        [(generations, again)] = await self._run(lambda link: link.fetch(self._rotate_statement, queues))
        if again:
            self._queues.update(queues)
        elif generations > 1:
            [(generations,)] = await self._run(lambda link: link.fetch(self._retire_statement))
        self._several = generations > 1
        return again

    async def close(self) -> None:
        if self._rotating is not None:
            await asyncio.wait([self._rotating])
