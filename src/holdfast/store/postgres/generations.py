"""Generations: opens another one when claims have to step over many dead rows, and retires those that are empty.

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
"""Seconds between two turns, so that wear that cannot be helped costs little."""

Run = Callable[[Callable[[Link], Awaitable[Any]]], Awaitable[Any]]


class Generations:
    """What one store object does about them: in the background, one step at a time, never in a caller's way."""

    def __init__(self, say: Callable[[str], str], run: Run) -> None:
        self._turn_statement, self._retire_statement = say(sql.TURN), say(sql.RETIRE)
        self._run = run
        self._turning: asyncio.Task[None] | None = None
        self._queues: set[str] = set()
        self._several = True

    def worn(self, queues: Iterable[str]) -> None:
        """A claim on these queues has read much more of its index than it took."""
        self._queues.update(queues)
        if self._turning is None:
            self._turning = asyncio.get_running_loop().create_task(self._turn())

    async def tidy(self) -> None:
        """See that old generations empty, where there are several."""
        if self._several and self._turning is None:
            await self._step()

    async def _turn(self) -> None:
        try:
            while await self._step():
                pass
            await asyncio.sleep(ROTATION_PAUSE)
        except Exception as error:  # noqa: BLE001  # claims go on, only dearer; the next one says so again
            logger.debug("turning the generation failed: %s", error)
        finally:
            self._turning = None

    async def _step(self) -> bool:
        queues, self._queues = sorted(self._queues), set[str]()
        [(generations, again)] = await self._run(lambda link: link.fetch(self._turn_statement, queues))
        if again:
            self._queues.update(queues)
        elif generations > 1:
            [(generations,)] = await self._run(lambda link: link.fetch(self._retire_statement))
        self._several = generations > 1
        return again

    async def close(self) -> None:
        if self._turning is not None:
            await asyncio.wait([self._turning])
