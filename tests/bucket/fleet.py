"""A fleet of processes on one hostile bucket, in virtual time: the bucket code itself, everything else made up.

The bucket answers "exists" after it applied a put, and to a conflict that left nothing behind; it throttles, fails,
times out, cuts bodies short, and applies puts minutes after it said that it failed. Processes crash, start, and are
paused wherever they wait for the bucket, longer than it takes others to clean up behind them. Wall clocks are wrong.

What must come out: every job that was acknowledged is done, and no job was finished twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from holdfast.clock import Entropy
from holdfast.errors import HoldfastError
from holdfast.job import Ask, Holder, NewJob, Record, State
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.engine import Engine
from holdfast.store.bucket.pace import Pace
from holdfast.store.bucket.seam import Listed
from holdfast.store.bucket.thread import Shared
from holdfast.store.commit import GroupCommit
from holdfast.testing.build import released, succeeded, swept
from support.virtual import VirtualClock, VirtualLoop

PACE = Pace(
    verify_after=20.0,
    clean_after=60.0,
    snapshot_entries=6,
    archive_jobs=10,
    look_soonest=0.1,
    look_latest=2.0,
    patience=15.0,
    watch_least=0.5,
)
LEASE = 12.0
T = TypeVar("T")


class HostileBucket:
    """The objects, and chance. `hostility` 0 is a bucket that is well."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, hostility: float) -> None:
        self.loop = loop
        self.chance = chance
        self.hostility = hostility
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.clock = VirtualClock(loop, 12_345.0)
        self.faults: Counter[str] = Counter()
        self.requests = 0

    def hits(self, what: str, odds: float) -> bool:
        if self.chance.random() < odds * self.hostility:
            self.faults[what] += 1
            return True
        return False

    async def trip(self) -> None:
        self.requests += 1
        await asyncio.sleep(self.chance.uniform(0.01, 0.08))

    def create(self, key: str, data: bytes) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = (data, self.clock.now())
        return True

    async def get(self, key: str) -> bytes | None:
        await self.trip()
        if self.hits("get failed", 0.04):
            raise OSError("500")
        found = self.objects.get(key)
        if found is not None and self.hits("body cut", 0.02):
            return found[0][: self.chance.randrange(len(found[0]))]
        return None if found is None else found[0]

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        await self.trip()
        if self.hits("conflict without an object", 0.02):
            return False
        if self.hits("put refused", 0.05):
            raise OSError("429 or 500")
        if self.hits("late put", 0.03):
            late = self.chance.choice((1.0, 10.0, 40.0, 150.0)) * self.chance.random()
            self.loop.call_later(late, self.create, key, data)
            raise TimeoutError("no answer")
        created = self.create(key, data)
        await self.trip()
        if self.hits("answer lost", 0.05):
            raise ConnectionResetError("cut")
        if created and self.hits("exists, after it was applied", 0.03):
            return False
        return created

    async def list(self, prefix: str, after: str | None = None) -> list[Listed]:
        await self.trip()
        if self.hits("list failed", 0.04):
            raise OSError("503")
        keys = sorted(key for key in self.objects if key.startswith(prefix) and (after is None or key > after))
        return [Listed(key, self.objects[key][1], len(self.objects[key][0])) for key in keys]

    async def delete(self, keys: list[str]) -> None:
        await self.trip()
        for key in keys:
            if self.hits("delete cut", 0.01):
                raise OSError("500")
            self.objects.pop(key, None)


class Port:
    """One process's way to the bucket, where it may be paused for ever so long."""

    def __init__(self, bucket: HostileBucket) -> None:
        self._bucket = bucket
        self.open = asyncio.Event()
        self.open.set()

    async def _through(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        await self.open.wait()
        try:
            answer, error = await call(*args), None
        except Exception as raised:  # noqa: BLE001  # told once the process goes on
            answer, error = None, raised
        await self.open.wait()
        if error is not None:
            raise error
        return answer

    async def get(self, key):
        return await self._through(self._bucket.get, key)

    async def put_if_absent(self, key, data):
        return await self._through(self._bucket.put_if_absent, key, data)

    async def list(self, prefix, after=None):
        return await self._through(self._bucket.list, prefix, after)

    async def delete(self, keys):
        return await self._through(self._bucket.delete, keys)


class Here(Shared):
    """The engine on the caller's own loop: no thread, so that everything happens in one order."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.bucket, engine.clock, engine.pace)
        self.engine = engine

    async def run(self, work):
        return await work(self.engine)


class Process:
    """Produces, consumes, beats and sweeps, until it is killed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.port = Port(world.bucket)
        self.clock = VirtualClock(world.loop, world.chance.choice((0.0, 0.0, 3600.0, -3600.0)))
        self.engine = Engine(self.port, self.clock, Entropy(world.chance.getrandbits(64)), PACE)
        self.store = BucketStore(self.port, PACE, clock=self.clock, _shared=Here(self.engine))
        self.holder = Holder(name, LEASE)
        self.known: dict[tuple[str, int], Record] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, *, produces: bool) -> None:
        while True:
            try:
                await self.engine.open()
                break
            except HoldfastError:
                await asyncio.sleep(0.5)
        self.commit = GroupCommit(self.store, Entropy(self.world.chance.getrandbits(64)))
        work = [self.consume(), self.beat(), self.sweep()]
        if produces:
            work += [self.produce(n) for n in range(2)]
        self.tasks += [asyncio.ensure_future(each) for each in work]

    async def kill(self) -> None:
        """At once, wherever it is: nothing more goes out, nothing is told."""
        self.port.open.clear()
        writing = getattr(getattr(self, "commit", None), "_drainer", None)
        tasks = [*self.tasks, *self.engine._tasks, *self.engine._writer._withdrawals]
        tasks += [writing] if writing is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def pause(self, seconds: float) -> None:
        self.port.open.clear()
        await asyncio.sleep(seconds)
        self.port.open.set()

    # -- what it does

    async def produce(self, number: int) -> None:
        world, n = self.world, 0
        while world.producing:
            n += 1
            ids = [f"{self.name}-{number}-{n}-{k}" for k in range(world.chance.choice((1, 1, 3)))]
            payload = b"x" * world.chance.choice((5, 5, 400, 70_000 if world.chance.random() < 0.02 else 5))
            try:
                answers = await self.commit.insert([NewJob(id, "t", "q", payload, nonce=n) for id in ids])
            except HoldfastError:
                pass
            else:
                world.operations += len(ids)
                world.acknowledged.update(a.id for a in answers if a.outcome in ("created", "existing"))
            await asyncio.sleep(world.chance.expovariate(1 / 2.0))

    async def consume(self) -> None:
        world = self.world
        while True:
            ask = Ask(self.holder, ("q",), world.chance.choice((1, 3, 5)), world.chance.getrandbits(60) | 1)
            try:
                claims = await self.commit.claim(ask)
            except HoldfastError:
                await asyncio.sleep(0.5)
                continue
            world.operations += len(claims.records)
            for record in claims.records:
                self.known[record.id, record.fence] = record
                world.check_claim(record)
                self.tasks.append(asyncio.ensure_future(self.work_on(record)))
            await asyncio.sleep(world.chance.expovariate(1 / (0.2 if claims.records else 1.0)))

    async def work_on(self, record: Record) -> None:
        await asyncio.sleep(self.world.chance.expovariate(1 / 0.5))
        end = replace(succeeded(record, nonce=self.world.chance.getrandbits(60) | 1), keep=None, result=b"r" * 300)
        while True:
            try:
                written = await self.commit.settle(end)
            except HoldfastError:
                await asyncio.sleep(0.5)
                continue
            break
        self.known.pop((record.id, record.fence), None)
        self.world.operations += 1
        if written:
            self.world.finished[record.id] += 1

    async def beat(self) -> None:
        while True:
            known = set(self.known)
            try:
                [beat] = await self.store.beat([self.holder])
            except HoldfastError:
                await asyncio.sleep(0.5)
                continue
            held = {(each.id, each.fence): each for each in beat.held}
            for place in known - set(held):
                self.known.pop(place, None)
            for place, each in held.items():
                # The log says that this process holds it, and it knows nothing of it: given back.
                if place not in self.known and place not in known:
                    self.tasks.append(asyncio.ensure_future(self.give_back(each)))
            await asyncio.sleep(LEASE / 3)

    async def give_back(self, held: Any) -> None:
        await asyncio.sleep(PACE.patience)  # an answer may still be on its way
        if (held.id, held.fence) in self.known:
            return
        try:
            [record] = await self.store.get([held.id])
            if record is not None and record.state == State.RUNNING and record.token == held.token:
                await self.commit.settle(released(record))
        except HoldfastError:
            pass

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(self.world.chance.uniform(1.0, 3.0))
            try:
                for lost in await self.store.expired(100):
                    await self.commit.settle(swept(lost))
                await self.store.tidy(100)
            except HoldfastError:
                continue


class World:
    """One schedule, from its seed."""

    def __init__(self, seed: int, *, seconds: float = 150.0, hostility: float = 1.0, sleepers: bool = False) -> None:
        self.loop = VirtualLoop()
        self.chance = random.Random(seed)
        self.bucket = HostileBucket(self.loop, self.chance, hostility)
        self.seconds = seconds
        self.sleepers = sleepers
        """Whether processes are mostly paused, and for long."""
        self.producing = True
        self.acknowledged: set[str] = set()
        self.finished: Counter[str] = Counter()
        self.fences: dict[str, int] = {}
        self.operations = 0
        self.pauses = self.crashes = 0

    def check_claim(self, record: Record) -> None:
        before = self.fences.get(record.id, 0)
        assert record.fence > before, f"{record.id} was claimed with fence {record.fence} after {before}"
        self.fences[record.id] = record.fence
        assert len(record.payload) in (5, 400, 70_000)

    async def run(self) -> None:
        processes = [Process(self, f"p{n}") for n in range(self.chance.choice((2, 3, 4)))]
        await asyncio.gather(*(process.start(produces=True) for process in processes))
        until, count = self.loop.now + self.seconds, len(processes)
        paused: list[asyncio.Task[None]] = []
        while self.loop.now < until:
            await asyncio.sleep(self.chance.expovariate(1 / 15.0))
            event, which = self.chance.random(), self.chance.randrange(len(processes))
            if event < (0.0 if self.sleepers else 0.35):
                self.crashes += 1
                await processes[which].kill()
                processes[which] = Process(self, f"p{count}")
                count += 1
                processes[which].tasks.append(asyncio.ensure_future(processes[which].start(produces=True)))
            elif event < 0.8:
                self.pauses += 1
                length = self.chance.choice(
                    (200.0,) if self.sleepers else (3.0, 30.0, 100.0, 200.0)
                ) * self.chance.uniform(0.5, 1.0)
                paused.append(asyncio.ensure_future(processes[which].pause(length)))
        # The faults stop: now everything must come to its end.
        self.bucket.hostility = 0.0
        self.producing = False
        await asyncio.gather(*paused)
        fresh = Process(self, "last")
        await fresh.start(produces=False)
        await self.until_done(fresh)
        await asyncio.gather(*(process.kill() for process in [*processes, fresh]))

    async def until_done(self, fresh: Process) -> None:
        """Until nothing that was acknowledged waits or runs, seen by a process that joined last."""
        ids = sorted(self.acknowledged)
        for _ in range(120):
            records = [record for at in range(0, len(ids), 50) for record in await fresh.store.get(ids[at : at + 50])]
            lost = [id for id, record in zip(ids, records, strict=True) if record is None]
            assert not lost, f"acknowledged and lost: {lost}"
            if all(record is not None and record.state == State.SUCCEEDED for record in records):
                break
            await asyncio.sleep(5.0)
        else:
            stuck = {record.id: record.state for record in records if record and record.state != State.SUCCEEDED}
            raise AssertionError(f"acknowledged and never done: {stuck}")
        twice = [id for id, times in self.finished.items() if times > 1]
        assert not twice, f"finished twice: {twice}"
