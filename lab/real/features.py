"""What a producer does beside plain jobs: flows, limits, signals, pauses, schedules and cancels."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from holdfast import Context, Holdfast, HoldfastError, limit
from holdfast.app import parts_of
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.core.job import State
from holdfast.core.operations import Where
from holdfast.core.retry import Backoff
from holdfast.testing.history import JournalFile, acknowledged, began, got, ran
from holdfast.testing.verbs import every

from ..sim.features import planned_flow
from ..sim.flows import expected, made

RETRIES = Backoff(base=0.1, factor=1.0, jitter=0.1, cap=1.0)
SIGNALS = tuple(f"signal-{number}" for number in range(12))
PAUSES: tuple[dict[str, Any], ...] = ({"task": "paused"}, {"task": "paused", "where": {"kind": "slow"}})
SCHEDULE = "tick"
KEYS = 4
"""Limit keys of each kind."""


class Features:
    """The features of one process. Every call either is acknowledged in the journal, or is known to have failed."""

    def __init__(
        self, app: Holdfast, journal: JournalFile, chance: Random, work: Callable[..., Awaitable[int]]
    ) -> None:
        self._app = app
        self._journal = journal
        self._chance = chance
        self._number = 0
        self._pausing: asyncio.Task[None] | None = None
        app.task(work, name="paused")
        app.task(self.waiting_for, name="waiting_for")

    async def waiting_for(self, ctx: Context, name: str) -> int:
        """Steps around a signal; what each has returned is journalled in every attempt."""
        self._journal.write(began(ctx.job.id, ctx.fence))

        async def drawn() -> int:
            return self._chance.getrandbits(32)

        for step in ("first", "last"):
            self._journal.write(got(ctx.job.id, ctx.fence, step, await ctx.step(step, drawn)))
            if step == "first":
                self._journal.write(got(ctx.job.id, ctx.fence, "signal", await ctx.wait_for(name)))
        self._journal.write(ran(ctx.job.id, ctx.fence))
        return ctx.fence

    async def one(self) -> None:
        """Do one of them, drawn by chance."""
        self._number += 1
        do = self._chance.choice((self._flow, self._flow, self._limited, self._waiting, self._paused, self._cancelled))
        try:
            await do()
        except OutcomeUnknown:
            self._count("features with an unknown outcome")
        except StoreUnavailable:
            await asyncio.sleep(0.1)
        if self._number == 1:
            await self._try(lambda: self._app.schedules.put(SCHEDULE, self._work("ok"), every=0.7, catch_up=2))
        elif self._chance.random() < 0.2:
            await self._try(lambda: self._app.signal(name := self._chance.choice(SIGNALS), name))
        elif self._pausing is None or self._pausing.done():
            self._pausing = asyncio.create_task(self._pause())

    def _count(self, what: str) -> None:
        self._journal.note(event="count", what=what)

    async def _try(self, do: Callable[[], Awaitable[object]]) -> None:
        try:
            await do()
        except HoldfastError:
            self._count("operations of features that failed")

    def _using(self, task: str = "work", **options: Any) -> Any:
        return parts_of(self._app).registry.tasks[task].using(max_attempts=0, retry=RETRIES, **options)

    def _work(self, kind: str) -> Any:
        return self._using().call(kind)

    async def _enqueue(self, using: Any, *args: Any, expect: str = "succeeded") -> str:
        id = (await using.enqueue(*args)).id
        self._journal.write(acknowledged(id, expect=expect))
        return id

    async def _flow(self) -> None:
        """A flow is acknowledged whole, or refused whole: by its name, a refused caller finds it not begun."""
        planned = planned_flow(self._chance, ("ok", "ok", "slow", "fails", "dies"))
        name = f"{os.getpid()}-{self._number}"
        flow = made(planned, parts_of(self._app).registry.tasks["work"], RETRIES, name)
        try:
            handle = await self._app.enqueue_flow(flow)
        except OutcomeUnknown:
            raise
        except StoreUnavailable:
            self._journal.note(event="flow_denied", what=name)
            raise
        ids = [*(handle.handle(node).id for node in flow.nodes), handle.id]
        self._journal.write(*(acknowledged(id, expect=end) for id, end in zip(ids, expected(planned), strict=True)))
        self._count("flows acknowledged")

    async def _limited(self) -> None:
        key = self._chance.randrange(KEYS)
        limits = (limit(name=f"one-{key}", concurrency=1), limit(name=f"rate-{key}", rate="20/s", burst=3))
        for _ in range(5):
            await self._enqueue(self._using(limit=self._chance.choice(limits)), "slow" if key == 0 else "ok")
        self._count("jobs under a limit (by five)")

    async def _waiting(self) -> None:
        await self._enqueue(self._using("waiting_for"), self._chance.choice(SIGNALS))
        self._count("jobs that wait for a signal")

    async def _paused(self) -> None:
        for _ in range(5):
            await self._enqueue(self._using("paused"), self._chance.choice(("ok", "slow")))
        self._count("jobs of a task that is paused now and then (by five)")

    async def _cancelled(self) -> None:
        id = await self._enqueue(self._using(), "slow", expect="")
        await asyncio.sleep(self._chance.random() * 0.5)
        await self._app.cancel(id)
        self._count("jobs cancelled")

    async def _pause(self) -> None:
        which = self._chance.choice(PAUSES)
        await self._try(lambda: self._app.pause(**which))
        await asyncio.sleep(self._chance.random() * 2.0)
        await self._try(lambda: self._app.resume(**which))
        self._count("pauses lifted")


async def at_rest(app: Holdfast) -> None:
    """After the faults: lift every pause, end the schedule and send every signal, so that all jobs can end."""
    for which in PAUSES:
        await app.resume(**which)
    if any(one.name == SCHEDULE for one in await app.schedules.list()):
        await app.schedules.delete(SCHEDULE)
    for name in SIGNALS:
        await app.signal(name, name)


async def unbegun(app: Holdfast) -> set[str]:
    """The jobs of flows whose caller never got them started: they wait, and never run."""
    store = parts_of(app).runtime.session.store
    blocked = [record.id for record in await every(store, Where((State.BLOCKED,)))]
    flow_of = {id: id.rpartition(".")[0] for id in blocked if "." in id}
    flows = sorted(set(flow_of.values()))
    started = {record.id for record in await store.get(flows) if record is not None} if flows else set[str]()
    return {id for id, flow in flow_of.items() if flow not in started}


async def begun_though_denied(app: Holdfast, denied: set[str]) -> list[str]:
    """Flows that are there, and so begun, though their caller got the error that nothing was written."""
    found, cursor = list[str](), None
    while denied:
        page = await app.flows.list(limit=1000, cursor=cursor)
        found += [one.id for one in page.flows if one.name in denied]
        if (cursor := page.cursor) is None:
            break
    return found
