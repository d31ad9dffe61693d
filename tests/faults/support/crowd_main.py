"""One of a crowd on one store: enqueues and settles as fast as it can, by hand or with a worker, and journals it all.

Enqueues for `--seconds` and until it has run a job itself, then only works; ends at SIGTERM. Any error at all is
journalled, and ends it with status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import time

from holdfast import Claim, Context, Holdfast, Worker

from .journal import Journal
from .processes import end_with_parent
from .worker_main import JournalHandler

AHEAD = 150
"""Where more jobs wait than this, a process enqueues no more for a moment: all of them are to be finished in time."""


class Member:
    """A process of the crowd."""

    def __init__(self, url: str, journal: Journal, seconds: float, seed: int) -> None:
        self.journal = journal
        self.app = Holdfast(url, lease=60.0, poll=0.1)
        self.chance = random.Random(seed * 1000 + os.getpid())
        self.until = time.monotonic() + seconds
        self.stopping = asyncio.Event()
        self.has_run = False
        self.app.task(self.run_by_worker, name="crowd")

    async def enqueue(self) -> None:
        """One by one, together, and in bulk; each acknowledged id is journalled once it is acknowledged."""
        app, chance, look_at = self.app, self.chance, 0.0
        while (time.monotonic() < self.until or not self.has_run) and not self.stopping.is_set():
            way = chance.randrange(3)
            if way == 0:
                handles = [await app.enqueue("crowd", chance.randrange(1000))]
            elif way == 1:
                handles = await asyncio.gather(*[app.submit("crowd", b'{"n": 1}', json=True) for _ in range(5)])
            else:
                handles = await app.enqueue_many([("crowd", n) for n in range(chance.randrange(1, 20))])
            for handle in handles:
                self.journal.write("acked", handle.id)
            if time.monotonic() > look_at:
                while (await app.stats()).counts["queued"] > AHEAD:  # noqa: ASYNC110  # other processes set no event here
                    await asyncio.sleep(0.1)
                look_at = time.monotonic() + 0.25
        self.journal.write("enqueued")

    def _started(self, job: str, fence: int) -> None:
        self.journal.write("start", job, fence=fence)
        self.has_run = True

    # -- by hand

    async def work_by_hand(self) -> None:
        while not self.stopping.is_set():
            claims = await self.app.claim(limit=self.chance.randrange(1, 6), lease=60.0)
            for claim in claims:
                self._started(claim.job.id, claim.fence)
            await asyncio.gather(*[self._settle(claim) for claim in claims])
            if not claims:
                await asyncio.sleep(0.01)

    async def _settle(self, claim: Claim) -> None:
        # What ends here is held for certain; the settlement comes after, so what overlaps was held twice.
        self.journal.write("end", claim.job.id, fence=claim.fence)
        way = self.chance.random() if claim.fence < 4 else 0.0
        if way < 0.8:
            await claim.complete(claim.fence)
            self.journal.write("settled", claim.job.id, about="complete", fence=claim.fence)
        elif way < 0.9:
            await claim.fail("no luck", retry_in=0.0)
            self.journal.write("settled", claim.job.id, about="fail", fence=claim.fence)
        else:
            await claim.release()
            self.journal.write("settled", claim.job.id, about="release", fence=claim.fence)

    # -- with a worker

    async def run_by_worker(self, ctx: Context, n: int) -> int:
        self._started(ctx.job.id, ctx.fence)
        await asyncio.sleep(self.chance.random() * 0.01)
        self.journal.write("end", ctx.job.id, fence=ctx.fence)
        return ctx.fence

    async def work_with_a_worker(self) -> None:
        worker = Worker(self.app, concurrency=4)
        run = asyncio.create_task(worker.run())
        await asyncio.wait([run, asyncio.create_task(self.stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        await run

    async def live(self, by: str) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        async with self.app, asyncio.TaskGroup() as group:
            group.create_task(self.enqueue())
            group.create_task(self.work_by_hand() if by == "hand" else self.work_with_a_worker())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--by", choices=["hand", "worker"], required=True)
    given = parser.parse_args()
    end_with_parent()
    journal = Journal(given.journal)
    logging.getLogger("holdfast").addHandler(JournalHandler(journal))
    try:
        asyncio.run(Member(given.url, journal, given.seconds, given.seed).live(given.by))
    except BaseException as error:
        journal.write("error", text=repr(error))
        raise


if __name__ == "__main__":
    main()
