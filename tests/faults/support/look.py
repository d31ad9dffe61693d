"""What a test sees of the store, and what it demands of a job; a failure names the job, its history and its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast import Holdfast, Job, State
from holdfast.app import parts_of
from holdfast.core.job import TERMINAL
from holdfast.core.operations import HolderInfo
from holdfast.sync.blocking import runs_on

from .journal import Journal
from .processes import Process
from .tasks import build
from .until import until


class Look:
    """The test's own connection to the store. It claims and sweeps nothing."""

    def __init__(self, app: Holdfast, journal: Journal) -> None:
        self.app = app
        self.sync = app.sync
        self.sync_run = runs_on(parts_of(app).runtime)
        self.journal = journal

    # -- enqueue

    def enqueue(self, task: str, *args: object, **kwargs: object) -> str:
        return self.sync.enqueue(task, *args, **kwargs).id

    def enqueue_many(self, task: str, calls: Iterable[tuple[object, ...]]) -> list[str]:
        return [handle.id for handle in self.sync.enqueue_many([(task, *args) for args in calls])]

    # -- see

    def holders(self) -> list[HolderInfo]:
        return self.sync_run(parts_of(self.app).session.store.holders)

    def held_by(self, pid: int) -> set[str]:
        """The jobs that the store says a process holds, alive or not."""
        return {job for seen in self.holders() if seen.holder.pid == pid for job in seen.jobs}

    def is_registered(self, pid: int) -> bool:
        """Whether the store knows a live worker of this process."""
        return any(seen.alive and seen.holder.pid == pid for seen in self.holders())

    def counts(self) -> dict[str, int]:
        return {state: count for state, count in self.sync.stats().counts.items() if count}

    def job(self, id: str) -> Job:
        return self.sync.job(id)

    def jobs(self) -> list[Job]:
        """Every job of the store."""
        found, cursor = [], None
        while True:
            page = self.sync.jobs(limit=1000, cursor=cursor)
            found += page.jobs
            cursor = page.cursor
            if cursor is None:
                return found

    # -- stop

    def freeze(self, process: Process) -> None:
        """SIGSTOP a process, but not while it holds a lock of the store that everybody else needs.

        In such a moment no other process can write, to whom a lease might pass: stop it at another.
        """
        for _ in range(50):
            process.freeze()
            probe = asyncio.run_coroutine_threadsafe(
                parts_of(self.app).records.put("probe", "probe", b"1"), parts_of(self.app).session.loop
            )
            try:
                probe.result(0.3)
            except TimeoutError:
                process.thaw()
                probe.result(30.0)
            else:
                return
        raise AssertionError(f"{process!r} held the store's lock in each of 50 moments")

    def kill(self, process: Process) -> set[str]:
        """kill -9 of a worker, and the jobs that it held: stopped meanwhile, so that no other recovers them first."""
        process.freeze()
        held = self.held_by(process.pid)
        process.kill()
        return held

    # -- wait

    def until_registered(self, *pids: int) -> None:
        for pid in pids:
            until(lambda pid=pid: self.is_registered(pid), f"a worker of process {pid} is in the store")

    def heartbeats(self, pid: int) -> int:
        """How often the holders of a process have renewed their leases."""
        return sum(seen.heartbeat for seen in self.holders() if seen.holder.pid == pid)

    def until_renewed(self, times: int, *pids: int) -> None:
        """Wait for so many more heartbeats of each process; a third of a lease passes between two."""
        goal = {pid: self.heartbeats(pid) + times for pid in pids}
        until(lambda: all(self.heartbeats(pid) >= goal[pid] for pid in pids), f"{pids} have beaten {times} times more")

    def until_started(self, *ids: str, fence: int = 1) -> None:
        def started() -> bool:
            found = {entry["job"] for entry in self.journal.entries("start", jobs=ids) if entry["fence"] == fence}
            return found.issuperset(ids)

        until(started, f"{len(ids)} jobs run under fence {fence}", details=lambda: self.stories(ids))

    def until_ended(self, ids: Iterable[str], limit: float = 60.0) -> None:
        """Wait until every one of these jobs is in a terminal state."""
        left = list(ids)

        def ended() -> bool:
            nonlocal left
            records = self.sync_run(parts_of(self.app).session.store.get, left)
            done = {record.id for record in records if record is not None and record.state in TERMINAL}
            left = [id for id in left if id not in done]
            return not left

        until(ended, f"all {len(left)} jobs have ended", limit, lambda: self.stories(left))

    # -- demand

    def story(self, id: str) -> str:
        """One job: what the store says, and what its runs wrote."""
        try:
            job = self.job(id)
        except LookupError as error:
            return f"job {id}: {error}\n  journal:\n{self.journal.of(id)}"
        head = f"job {id} {job.payload}: {job.state}, attempt {job.attempt}, fence {job.fence}, by {job.worker}"
        past = [f"    fence {line.fence} #{line.number} {line.outcome} {line.error or ''}" for line in job.history]
        return "\n".join([head, f"  {job.error}", "  history:", *past, "  journal:", self.journal.of(id)])

    def stories(self, ids: Iterable[str], at_most: int = 5) -> str:
        ids = list(ids)
        shown = "\n".join(self.story(id) for id in ids[:at_most])
        return f"{len(ids)} jobs:\n{shown}" + ("" if len(ids) <= at_most else f"\n… and {len(ids) - at_most} more")

    def demand(self, id: str, holds: object, what: str) -> None:
        """Fail with the job's story unless `holds`."""
        assert holds, f"{what}\n{self.story(id)}"

    def demand_all(self, ids: Iterable[str], holds: Callable[[Job], object], what: str) -> None:
        wrong = [id for id in ids if not holds(self.job(id))]
        assert not wrong, f"{what}: not so for {self.stories(wrong)}"

    def demand_finished_once(self, expected: dict[str, object]) -> None:
        """Each job succeeded, once, with its result; each of its claims has one line of history and its own fence."""
        jobs = {job.id: job for job in self.jobs()}
        missing = expected.keys() - jobs.keys()
        assert not missing, f"lost: {self.stories(missing)}"
        for id, result in expected.items():
            job = jobs[id]
            if job.state == State.SUCCEEDED and job.result == result and job.fence == 1 and len(job.history) == 1:
                continue
            self.demand(id, job.state == State.SUCCEEDED, "a job did not succeed")
            self.demand(id, job.result == result, f"a job's result is not {result!r}")
            ends = [line.outcome for line in job.history]
            self.demand(id, ends.index("succeeded") == len(ends) - 1, "a job has not ended exactly once")
            fences = [line.fence for line in job.history]
            self.demand(id, fences == list(range(1, job.fence + 1)), "a job's history does not show each claim once")

    def demand_no_trouble(self, but: str = "nothing") -> None:
        """No process has complained of anything else."""
        trouble = [entry for entry in self.journal.entries("warning", "error") if but not in entry["text"]]
        assert not trouble, f"{len(trouble)} complaints, the first: {trouble[:5]}"


@contextmanager
def looking(url: str, journal: Journal) -> Iterator[Look]:
    app = build(url, journal)
    with app.sync:
        yield Look(app, journal)
