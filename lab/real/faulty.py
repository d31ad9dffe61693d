"""A store in whose process something goes wrong on purpose: an answer is lost, or the process dies at a named point."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from random import Random
from typing import Any

from holdfast.core.errors import OutcomeUnknown
from holdfast.core.operations import HeartbeatReply, Holder
from holdfast.store.protocol import Answers, Batch, Store
from holdfast.testing.history import Entry, Journal

POINTS = (
    "before a write",
    "after an insert",
    "before a settlement",
    "after a settlement",
    "after a claim",
    "after a beat",
    "as a job begins",
    "as a job has ended",
)
"""Where a process can be made to die: `after` is when the store has done it, before any answer."""


class Crash:
    """Kills this process at the n-th passing of a named point."""

    def __init__(self, journal: Journal, point: str, number: int) -> None:
        self._journal = journal
        self._point = point
        self._left = number

    def pass_by(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                self._journal.write(Entry("crash", what=point))
                os.kill(os.getpid(), signal.SIGKILL)


class Faulty:
    """Any store; `lose` of all answers to writes are lost after the write was made."""

    def __init__(self, store: Store, journal: Journal, crash: Crash, lose: float, chance: Random) -> None:
        self._store = store
        self._journal = journal
        self._crash = crash
        self._lose = lose
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def sibling(self) -> Faulty:
        return Faulty(self._store.sibling(), self._journal, self._crash, self._lose, self._chance)

    async def write(self, batch: Batch) -> Answers:
        self._crash.pass_by("before a write")
        if batch.settles:
            self._crash.pass_by("before a settlement")
        answers = await self._store.write(batch)
        if batch.inserts:
            self._crash.pass_by("after an insert")
        if batch.settles:
            self._crash.pass_by("after a settlement")
        if any(claims.records for claims in answers.asks):
            self._crash.pass_by("after a claim")
        if self._chance.random() < self._lose:
            self._journal.write(Entry("dropped"))
            raise OutcomeUnknown("the answer was lost (on purpose)")
        return answers

    async def heartbeat(self, holders: Sequence[Holder]) -> list[HeartbeatReply]:
        heartbeats = await self._store.heartbeat(holders)
        self._crash.pass_by("after a beat")
        return heartbeats
