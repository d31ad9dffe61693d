"""A batch with changes, or with several asks: one transaction in several round trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol import Answers, Batch
from . import sql
from .call import Call
from .change import Changes
from .pool import Link


async def write(
    link: Link, say: Callable[[str], str], batch: Batch, *, with_hint: bool
) -> tuple[Answers, list[tuple[Call, list[Any]]], str | None]:
    """The answers, the calls with their rows, and the hint of the changes, if the store itself publishes it."""
    answers = Answers()
    done: list[tuple[Call, list[Any]]] = []

    async def part(some: Batch, *, patient: bool = True) -> Answers:
        call = Call(some, with_hint=with_hint, patient=patient)
        rows = await link.fetch(say(sql.WRITE), *call.arguments)
        done.append((call, rows))
        return call.answers(rows)[0]

    hint = None
    async with link.raw.transaction():
        if batch.changes and (batch.notes or batch.settles):
            # A sweep waits for no lock.
            ids = {each.id for each in (*batch.notes, *batch.changes)}
            ids |= {end.id for end in batch.settles if end.expected_heartbeat is None}
            await link.fetch(say(sql.LOCK), sorted(ids))
        if batch.inserts or batch.notes or batch.settles:
            answers = await part(Batch(batch.inserts, batch.notes, batch.settles))
        if batch.changes:
            changes = Changes(link, say)
            answers.changes = await changes.make(batch.changes)
            names = sorted(changes.queues), sorted(changes.ended), sorted(changes.holders)
            if any(names):
                hint = (await link.fetch(say(sql.HINT), *names, with_hint))[0][0]
        answers.asks = [(await part(Batch(asks=[ask]), patient=at == 0)).asks[0] for at, ask in enumerate(batch.asks)]
    return answers, done, hint if with_hint else None
