"""One round: processes on a fresh place, faults for a while, then calm, a drain, and the check of its journal."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from holdfast import Holdfast, HoldfastError
from holdfast.app import parts_of
from holdfast.core.job import TERMINAL
from holdfast.store.protocol import Store
from holdfast.testing.history import JournalFile, Terms, Verdict, calm, check, final, held_by_expired_holder, left, read
from holdfast.testing.verbs import every

from ..process import Process
from ..until import until
from .clocks import LATE, OFFSETS, WrongClock, faketime
from .disk import Disk
from .faulty import POINTS
from .features import at_rest, begun_though_denied, unbegun
from .member import LEASE
from .places import Place
from .proxy import Proxy

LONGEST = 120.0
"""Seconds of faults, where something that must be met is not."""
WORK = 50_000
"""Bytes of the journal with which faults begin."""
SPELL = 2.0
"""Seconds for which nothing can be synced, where nobody wants to."""
DRAIN_LIMIT = 240.0
REST = 3.0
"""Seconds after the schedule was deleted in which a worker that had read it before may still make a run of it."""


@dataclass
class Mix:
    """How much goes wrong: faults of each kind per minute."""

    kills: float = 60.0
    stops: float = 16.0
    restarts: float = 8.0
    troubles: float = 1200.0
    bad_disks: float = 4.0
    """Spells in which nothing can be synced; a server is started again after one."""
    crash_points: float = 0.3
    """Of all processes, those that are to die at a named point."""
    lose: float = 0.2
    """Of all answers, those that a process loses itself: for stores without a line to cut."""
    skewed: float = 0.25
    """Of all processes, those whose wall clock is wrong."""
    jumps: float = 10.0
    """Of the wrong clocks, those that change to another offset."""
    features: float = 0.0
    """Of all that a producer does, what is one of `features.py`."""
    crowd: int = 100
    """Easy jobs that a producer makes by one call, now and then."""
    must_meet: tuple[str, ...] = ()
    """What a round goes on for, beyond its time, until it was met."""
    workers: int = 3
    producers: int = 2
    hands: int = 1


@dataclass
class Report:
    """What a round has met, and whether every rule held."""

    verdict: Verdict
    counts: Counter[str] = field(default_factory=Counter[str])
    journal: Path = Path()


class Round:
    """A round under way."""

    def __init__(  # noqa: PLR0917  # a round has what it has
        self, place: Place, folder: Path, number: int, seed: int, mix: Mix, disk: Disk | None = None
    ) -> None:
        self.place = place
        self.disk = disk
        self.folder = folder
        self.number = number
        self.mix = mix
        self.chance = Random(seed)
        self.counts: Counter[str] = Counter()
        self.journal = JournalFile(folder / "journal")
        self.proxy = Proxy(place.port, seed) if place.has_server else None
        self.url = place.url(folder, number, self.proxy.port if self.proxy else None)
        self.members: list[tuple[str, Process]] = []
        self.stopped: dict[int, tuple[Process, float]] = {}
        self.started = 0
        self.faulty = True
        self.clocks: dict[int, WrongClock] = {}
        """By process."""

    def run(self, seconds: float) -> Report:
        try:
            for role, count in self._wanted().items():
                for _ in range(count):
                    self._start(role)
            until(lambda: self.journal.path.exists() and self.journal.path.stat().st_size > WORK, "there is work")
            self._trouble(seconds)
            self._calm()
            self._drain()
            self._end()
        finally:
            for _, process in self.members:
                process.close()
            if self.proxy is not None:
                self.counts.update(self.proxy.counts)
                self.proxy.close()
        for what in self.place.leftovers(self.folder, self.number):
            self.journal.write(left(what))
        terms = Terms(
            store_time=self.place.wall_clock_is_shared or not self.clocks,
            all_recorded=self.place.all_recorded,
            locks=self.place.locks,
            deletes=False,
        )
        verdict = check(read(self.journal.path), terms)
        self._count(verdict)
        return Report(verdict, self.counts, self.journal.path)

    def _wanted(self) -> dict[str, int]:
        return {"worker": self.mix.workers, "producer": self.mix.producers, "hand": self.mix.hands}

    # -- processes

    def _start(self, role: str, offset: int = 0) -> None:
        self.started += 1
        args = ["--url", self.url, "--journal", str(self.journal.path), "--role", role]
        args += ["--seed", str(self.chance.randrange(2**31)), "--crowd", str(self.mix.crowd)]
        args += ["--features", str(self.mix.features)]
        if self.faulty:
            args += ["--lose", str(self.mix.lose if self.proxy is None else self.mix.lose / 4)]
            if self.chance.random() < self.mix.crash_points:
                args += ["--crash", f"{self.chance.choice(POINTS)}:{self.chance.randrange(1, 60)}"]
        if self.faulty and self.chance.random() < self.mix.skewed:
            offset = self.chance.choice(OFFSETS)
        name = f"{self.started}-{role}"
        clock = WrongClock(self.folder / f"{name}.clock", offset) if offset and faketime() else None
        env = {} if clock is None else clock.env
        if self.disk is not None and self.disk.env:
            preload = " ".join(filter(None, [env.get("LD_PRELOAD"), self.disk.env["LD_PRELOAD"]]))
            env |= self.disk.env | {"LD_PRELOAD": preload}
        process = Process(name, "lab.real.member", args, self.folder / f"{name}.log", env=env)
        self.members.append((role, process))
        if clock is not None:
            self.clocks[process.pid] = clock
            self.counts["processes with a wrong wall clock"] += 1

    def _keep_up(self) -> None:
        """Replace dead processes; continue those that were stopped for long enough."""
        now = time.monotonic()
        for pid, (process, when) in list(self.stopped.items()):
            if now >= when:
                del self.stopped[pid]
                if process.running:
                    process.thaw()
        for role, process in list(self.members):
            if not process.running:
                self.members.remove((role, process))
                code = process.ended()
                if code == -signal.SIGKILL:
                    self.counts["processes killed (SIGKILL), in all"] += 1
                else:
                    self.journal.write(left(f"{process!r} ended by itself:\n{process.output()[-1500:]}"))
                process.close()
                self._start(role)

    # -- faults

    def _trouble(self, seconds: float) -> None:
        mix, begun = self.mix, time.monotonic()
        rates = {"kill": mix.kills, "stop": mix.stops, "jump": mix.jumps}
        if self.proxy is not None:
            rates |= {"restart": mix.restarts, "disturb": mix.troubles}
        if self.disk is not None and self.disk.can_fail and mix.bad_disks:
            rates["spoil"] = mix.bad_disks
        due = {what: begun + self._pause(rate) for what, rate in rates.items()}
        while (now := time.monotonic()) < begun + (seconds if self._has_met_all() else LONGEST):
            for what, when in due.items():
                if now >= when:
                    getattr(self, f"_{what}")()
                    due[what] = time.monotonic() + self._pause(rates[what])
            self._keep_up()
            time.sleep(0.02)

    def _has_met_all(self) -> bool:
        return all(self.counts[name] for name in self.mix.must_meet)

    def _pause(self, per_minute: float) -> float:
        return self.chance.expovariate(per_minute / 60.0)

    def _pick(self) -> Process | None:
        able = [process for _, process in self.members if process.running and process.pid not in self.stopped]
        return self.chance.choice(able) if able else None

    def _kill(self) -> None:
        if (process := self._pick()) is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
                self.counts["killed at random"] += 1

    def _stop(self) -> None:
        if len(self.stopped) < 2 and (process := self._pick()) is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP)
                seconds = self.chance.uniform(0.5, 2.5 * LEASE)
                self.stopped[process.pid] = (process, time.monotonic() + seconds)
                self.counts["stopped (SIGSTOP)"] += 1
                self.counts["stopped past the lease"] += seconds > LEASE

    def _jump(self) -> None:
        if (process := self._pick()) is not None and (clock := self.clocks.get(process.pid)) is not None:
            clock.jump(self.chance)
            self.counts["wall clocks that jumped"] += 1

    def _restart(self) -> None:
        self.place.kill()
        time.sleep(self.chance.choice((0.0, 0.1, 1.0)))
        self.place.start()
        self.counts["server killed and restarted"] += 1

    def _spoil(self) -> None:
        assert self.disk is not None
        before, end = self.disk.failures(), time.monotonic() + SPELL
        with self.disk.failing(self.chance.choice(("all", "all", "all", "once", "folders"))):
            while self.disk.failures() == before and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(self.chance.uniform(0.0, 0.5))
            if self.place.has_server:  # it has ended by itself, or should be: what it cannot sync it cannot promise
                self.place.kill()
        if self.place.has_server:
            self.place.start()
        self.counts["syncs failed"] += self.disk.failures() - before

    def _disturb(self) -> None:
        if self.proxy is not None:
            self.proxy.trouble()

    # -- the end

    def _calm(self) -> None:
        self.faulty = False
        for process, _ in self.stopped.values():
            if process.running:
                process.thaw()
        self.stopped.clear()
        self.journal.write(calm())
        for role, process in list(self.members):
            if role != "worker" or self.chance.random() < 0.5:
                with suppress(AssertionError):
                    process.send(signal.SIGTERM)
        self._start("worker")  # this one has no faults planted in it
        self._start_late()

    def _start_late(self) -> None:
        """Where the hosts' own clocks say what is due, a wrong one may have put a retry a day off: be there then."""
        self._start("worker", LATE if self.clocks and not self.place.wall_clock_is_shared else 0)

    def _drain(self) -> None:
        deadline, look = time.monotonic() + DRAIN_LIMIT, time.monotonic() + LEASE + self.place.sweep

        async def drain() -> None:
            app = Holdfast(self.place.url(self.folder, self.number))
            async with app:
                looked, rested = False, 0.0 if self.mix.features else -REST
                while time.monotonic() < deadline:
                    self._replace_the_fallen()
                    if not rested and not self._producing():
                        await at_rest(app)
                        rested = time.monotonic()
                    counts = {state: n for state, n in (await app.stats()).counts.items() if n}
                    if self.mix.features and counts.get("blocked", 0) == len(await unbegun(app)):
                        counts.pop("blocked", None)
                    if not looked and time.monotonic() > look:
                        looked = True
                        await self._look(parts_of(app).runtime.session.store)
                    over = looked and rested and time.monotonic() > rested + REST and not self._producing()
                    if counts.keys() <= TERMINAL and over:
                        return
                    await asyncio.sleep(0.1)

        asyncio.run(drain())

    def _replace_the_fallen(self) -> None:
        """Poison goes on killing until it is dead; what a crash was planted in may still meet it."""
        for role, process in list(self.members):
            if not process.running:
                self.members.remove((role, process))
                if process.ended() == -signal.SIGKILL:
                    self.counts["processes killed (SIGKILL), in all"] += 1
                    if role == "worker":
                        self._start_late()
                process.close()

    def _producing(self) -> bool:
        return any(role == "producer" and process.running for role, process in self.members)

    async def _look(self, store: Store) -> None:
        """Claims of the dead that nobody has taken back, though there was time."""
        for seen in await store.holders():
            if not seen.alive and seen.age > seen.holder.lease + self.place.sweep:
                self.journal.write(*(held_by_expired_holder(job, seen.holder.id) for job in seen.jobs))

    def _end(self) -> None:
        for _, process in self.members:
            if process.running:
                process.send(signal.SIGTERM)
        for _, process in self.members:
            try:
                code = process.ended(30.0)
            except AssertionError:
                process.send(signal.SIGUSR1)
                with suppress(AssertionError):
                    process.ended(2.0)
                self.journal.write(left(f"{process!r} does not end:\n{process.output()}"))
                continue
            if code not in (0, -signal.SIGKILL, -signal.SIGTERM):  # the last: it had not begun yet
                self.journal.write(left(f"{process!r} ended with {code}:\n{process.output()[-1500:]}"))
            if process._has_group():
                self.journal.write(left(f"{process!r} left a child process behind"))

        async def dump() -> None:
            async with Holdfast(self.place.url(self.folder, self.number)) as app:
                store: Any = parts_of(app).runtime.session.store
                denied = self._noted("flow_denied")
                for flow in await begun_though_denied(app, set(denied)):
                    self.journal.write(left(f"flow {flow}, whose caller got the error that nothing was written"))
                records = await every(store, page=1000)
                for at in range(0, len(records), 500):
                    self.journal.write(*final(records[at : at + 500]))

        try:
            asyncio.run(dump())
        except HoldfastError as error:
            self.journal.write(left(f"a store that cannot be read: {error}"))

    def _noted(self, event: str) -> list[str]:
        """What processes have noted beside the history."""
        return [entry.what for entry in read(self.journal.path) if entry.event == event]

    def _count(self, verdict: Verdict) -> None:
        history, counts = verdict.history, self.counts
        counts.update(self._noted("count"))
        counts["acknowledged jobs"] += verdict.jobs
        counts["events"] += history.length
        counts["claims held to their order"] += history.judged
        counts["answers dropped in the process"] += history.counts.get("dropped", 0)
        counts["killed at a named point"] += history.counts.get("crash", 0)
        counts["killed by a poison job"] += history.counts.get("poisoned", 0)
        for job in history.jobs.values():
            counts["claims"] += len(job.claims)
            counts["jobs finished"] += bool(job.final and job.final.state in TERMINAL)
            for end in job.ends.values():
                counts["claims swept"] += bool(end.entry.sweep and end.accepted)
                counts["settlements sent again"] += len(end.sent) > 1
                counts["settlements refused"] += any(one.says == "no" for one in end.sent)
        counts["jobs lost"] += sum(1 for one in verdict.violations if one.rule == "no_acknowledged_job_is_lost")
        counts["jobs finished twice"] += sum(1 for one in verdict.violations if one.rule == "one_end_per_reset_count")
