"""One process of a run: `python -m lab.real.member --role producer|worker|hand …`. SIGTERM ends it in order."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
import time
from random import Random
from typing import Any

from holdfast import Context, Holdfast, HoldfastError, OutcomeUnknown, Snooze, Worker
from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.core.errors import JobExists, PartialEnqueue, StoreUnavailable
from holdfast.store.open import open_store
from holdfast.testing.history import Entry, JournalFile, acknowledged, began, denied, ran, recorded

from ..process import end_with_parent
from .faulty import Crash, Faulty
from .features import Features

LEASE, POLL = 2.0, 0.2
AHEAD = 1500
"""Where more jobs wait, a producer waits too: all of them are to be finished in time."""
PLAIN = ("work", "work_in_thread", "poison")
"""Tasks whose jobs a manual consumer can end, where there are others."""
KINDS = ("ok",) * 30 + ("thread",) * 6 + ("fails", "snoozes", "slow", "checkpoints")


class Member:
    def __init__(
        self, url: str, journal: str, seed: int, *, crash: str, lose: float, crowd: int, features: float
    ) -> None:
        self.journal = JournalFile(journal)
        self.chance = Random(seed)
        self.crowd = crowd
        self.share = features
        """Of all that a producer does, what is one of `features.py`."""
        point, _, number = crash.rpartition(":")
        self.crash = Crash(self.journal, point, int(number or 0))
        clock = SystemClock()
        store: Any = Faulty(open_store(url, clock), self.journal, self.crash, lose, self.chance)
        self.app = Holdfast(
            recorded(store, self.journal, f"{os.getpid()}"),
            clock=clock,
            lease=LEASE,
            poll=POLL,
            grace=10.0,
            retry_base=0.1,
            retry_factor=1.0,
            retry_jitter=0.1,
            max_crashes=1000,
        )
        self.app.task(self.work, name="work")
        self.app.task(self.work_in_thread, name="work_in_thread")
        self.app.task(self.poison, name="poison", max_attempts=3)
        self.features = Features(self.app, self.journal, self.chance, self.work)
        self.stopping = asyncio.Event()
        self.number = 0

    # -- tasks

    async def work(self, ctx: Context, kind: str, given: list[int | None] | None = None) -> int:
        self._began(ctx)
        if kind == "dies" or (kind == "fails" and ctx.fence == 1):
            raise ValueError("no luck")
        if kind == "snoozes" and ctx.fence == 1:
            raise Snooze(0.2)
        if kind == "checkpoints":
            await ctx.checkpoint({"fence": ctx.fence})
        await asyncio.sleep(2.0 * self.chance.random() ** 3 if kind == "slow" else self.chance.random() * 0.01)
        self._ran(ctx)
        return ctx.fence

    def work_in_thread(self, ctx: Context, kind: str) -> int:
        self._began(ctx)
        time.sleep(self.chance.random() * 0.01)
        self._ran(ctx)
        return ctx.fence

    def poison(self, ctx: Context) -> None:
        self._began(ctx)
        self.journal.write(Entry("poisoned"))
        os.kill(os.getpid(), signal.SIGKILL)

    def _began(self, ctx: Context) -> None:
        self.journal.write(began(ctx.job.id, ctx.fence))
        self.crash.pass_by("as a job begins")

    def _ran(self, ctx: Context) -> None:
        self.journal.write(ran(ctx.job.id, ctx.fence))
        self.crash.pass_by("as a job has ended")

    # -- roles

    async def produce(self) -> None:
        while not self.stopping.is_set():
            if self.chance.random() < self.share:
                await self.features.one()
            else:
                await self._enqueue()
            if self.chance.random() < 0.1:
                await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        while not self.stopping.is_set():
            try:
                counts = (await self.app.stats()).counts
            except HoldfastError:
                counts = {"queued": AHEAD + 1}
            if counts["queued"] <= AHEAD:
                return
            await asyncio.sleep(0.1)

    async def _enqueue(self) -> None:
        self.number += 1
        name = f"{os.getpid()}-{self.number}"
        way, kind = self.chance.random(), self.chance.choice(KINDS)
        task = "work_in_thread" if kind == "thread" else "work"
        tasks, options = (
            parts_of(self.app).registry.tasks,
            {"max_attempts": 0, "priority": self.chance.choice((0, 0, 0, -1, 1))},
        )
        using = tasks[task].using(**options)
        if way < 0.004:
            await self._one(tasks["poison"].using(id=f"poison-{name}"), expect="dead")
        elif way < 0.3:
            await self._one(tasks[task].using(id=name, **options), kind)
        elif way < 0.5:
            key = f"key-{self.chance.randrange(50)}-{self.number // 50}"  # every producer draws from the same keys
            await self._one(tasks["work"].using(key=key, **options), "ok", key=key)
        elif way < 0.7:
            await asyncio.gather(*(self._one(using, kind) for _ in range(20)))
        elif way < 0.9:
            await self._bulk(using, kind, self.chance.choice((10, 50, 100)))
        else:
            await self._bulk(tasks["work"].using(**options), "ok", self.crowd)

    async def _one(self, using: Any, *args: Any, key: str = "", expect: str = "succeeded") -> None:
        unknown = False
        while True:
            try:
                handle = await using.enqueue(*args)
            except JobExists as error:  # an earlier try of ours
                self.journal.write(acknowledged(error.job_id, expect=expect))
                if not unknown:
                    self.journal.write(denied(error.job_id))
                return
            except OutcomeUnknown as error:
                unknown = True
                if not error.retry_safe:
                    return
                await asyncio.sleep(0.05)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            else:
                self.journal.write(acknowledged(handle.id, key=key, expect=expect))
                return

    async def _bulk(self, using: Any, kind: str, count: int) -> None:
        try:
            handles = await self.app.enqueue_many([(using, kind)] * count)
        except PartialEnqueue as error:
            handles = [handle for handle in error.handles if handle is not None]
        except HoldfastError:
            await asyncio.sleep(0.1)
            return
        self.journal.write(*(acknowledged(handle.id, expect="succeeded") for handle in handles))

    async def consume(self) -> None:
        """By hand, and not always in time."""
        while not self.stopping.is_set():
            try:
                claims = await self.app.claim(limit=5, lease=LEASE, wait=0.5, tasks=PLAIN if self.share else None)
            except HoldfastError:
                await asyncio.sleep(0.1)
                continue
            for claim in claims:
                if claim.job.task == "poison":
                    os.kill(os.getpid(), signal.SIGKILL)
                self.journal.write(began(claim.job.id, claim.fence))
                if self.chance.random() < 0.02:
                    await asyncio.sleep(LEASE * 1.5)
                self.journal.write(ran(claim.job.id, claim.fence))
                try:
                    if claim.job.payload["kind"] == "dies":
                        await claim.fail("no luck")
                    else:
                        await claim.complete(claim.fence)
                except HoldfastError:
                    continue

    async def run_worker(self) -> None:
        worker = Worker(self.app, concurrency=32)
        stop = asyncio.create_task(self.stopping.wait())
        stop.add_done_callback(lambda _: worker.stop())
        while not self.stopping.is_set():
            try:
                await worker.run()
            except HoldfastError:
                await asyncio.sleep(0.2)

    async def live(self, role: str) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        while not self.stopping.is_set():
            try:
                await self.app.open()
                break
            except HoldfastError:
                await asyncio.sleep(0.2)
        await {"producer": self.produce, "worker": self.run_worker, "hand": self.consume}[role]()
        await self.app.close()


def tell_where_it_is() -> None:
    """From SIGUSR1 on: where every thread and every task is, to find out why this process does not end."""

    def tasks(*_: object) -> None:
        faulthandler.dump_traceback()
        for task in gc.get_objects():
            if isinstance(task, asyncio.Task) and not task.done():
                task.print_stack(file=sys.stderr)
        sys.stderr.flush()

    signal.signal(signal.SIGUSR1, tasks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--role", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--crash", default="")
    parser.add_argument("--lose", type=float, default=0.0)
    parser.add_argument("--crowd", type=int, required=True)
    parser.add_argument("--features", type=float, default=0.0)
    given = parser.parse_args()
    end_with_parent()
    tell_where_it_is()
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    member = Member(
        given.url, given.journal, given.seed, crash=given.crash, lose=given.lose, crowd=given.crowd,
        features=given.features,
    )  # fmt: skip
    asyncio.run(member.live(given.role))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
