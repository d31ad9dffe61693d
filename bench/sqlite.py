"""The SQLite run: Holdfast beside Huey, litequeue and the raw loop."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from . import rows
from .contender import Contender
from .environment import own_versions, python_of, versions_in
from .process import BenchError, Child
from .rows import HOLDFAST, RAW, SYNC, THREADS
from .scale import Scale
from .scenario import Scenario, Values

HUEY = "Huey"
LITEQUEUE, LITEQUEUE_SHIPPED = "litequeue", "litequeue, as shipped (not synced)"
FILE = "jobs.db"
CONCURRENCY = 100
SLOW = 4
"""By how much fewer jobs litequeue is given to run."""
HUEY_THREADS = {HUEY: 1, "Huey, 4 threads": 4}
"""Which is faster changes from run to run: both take part, and the better of each repeat is the one to beat."""

DURABILITY = {
    HOLDFAST: "WAL, synchronous=FULL (its default)",
    HUEY: "WAL, synchronous=FULL (fsync=True); a job is deleted when taken, so a crash loses it; no result is stored",
    LITEQUEUE: "WAL, synchronous=FULL (set on its connection after it was made)",
    LITEQUEUE_SHIPPED: "WAL, synchronous=NORMAL: the last commits may be lost when the machine goes down",
    RAW: "WAL, synchronous=FULL, Holdfast's own tables and indexes, no leases, fences or retries",
}

SINGLES, GROUPED, BULK = "enqueue, one at a time", "enqueue, 100 at once", "enqueue, 1,000 in bulk"
RUN_ONE, RUN_TWO = "run, one worker process", "run, two worker processes"
P50, P99 = "idle latency, median", "idle latency, 99 %"
IMPORT = "import, beyond asyncio"


def depth_name(depth: int) -> str:
    return f"claim and settle at depth {depth:,}"


class Sqlite:
    """Who takes part, and how each is asked."""

    def __init__(self) -> None:
        self.peers = python_of("sqlite")
        own = sys.executable

        def url(folder: Path) -> dict[str, str]:
            return {"HOLDFAST_URL": f"sqlite:///{folder / FILE}"}

        def file(folder: Path) -> dict[str, str]:
            return {"BENCH_FILE": str(folder / FILE)}

        self.holdfast = Contender(own, "bench.holdfast_side", url)
        self.raw = Contender(own, "bench.raw", file)
        self.depth = Contender(own, "bench.sqlite_depth", file)
        self.huey = Contender(self.peers, "bench.peers.huey_side", file)
        self.litequeue = Contender(self.peers, "bench.peers.litequeue_side", file)

    def versions(self) -> dict[str, str]:
        return {**own_versions(["holdfast", "msgspec"]), **versions_in(self.peers, ["huey", "litequeue"])}

    def scenarios(self, scale: Scale) -> list[Scenario]:
        return [
            self._singles(scale.singles),
            self._grouped(GROUPED, "callers", 100, scale.grouped),
            self._grouped(BULK, "bulk", 1000, scale.grouped),
            self._run_one(scale),
            self._run_two(scale),
            self._latency(scale),
            rows.cancellation(self.holdfast, scale.latency),
            rows.idle_worker(self.holdfast, scale.idle, {HUEY: self._idle_huey}),
            rows.payloads({HOLDFAST: self.holdfast, RAW: self.raw, HUEY: self.huey}, scale.payloads),
            rows.flows(self.holdfast, scale.flows, self.raw),
            rows.command(self.holdfast, scale.imports // 2),
            *[self._depth(depth, scale.depth_rounds) for depth in scale.depths],
            self._imports(scale.imports),
        ]

    def _singles(self, count: int) -> Scenario:
        def litequeue(*, synced: bool) -> Callable[[Path], float]:
            return lambda folder: self.litequeue.rate(folder, do="enqueue", count=count, synced=synced)

        return Scenario(
            SINGLES,
            "jobs/s",
            {
                HOLDFAST: lambda folder: self.holdfast.rate(folder, do="enqueue", how="singles", count=count),
                SYNC: lambda folder: self.holdfast.rate(folder, do="enqueue", how="sync", count=count),
                RAW: lambda folder: self._raw_enqueue(folder, count, 1),
                HUEY: lambda folder: self.huey.rate(folder, do="enqueue", count=count),
                LITEQUEUE: litequeue(synced=True),
                LITEQUEUE_SHIPPED: litequeue(synced=False),
            },
        )

    def _raw_enqueue(self, folder: Path, count: int, per_transaction: int) -> float:
        return self.raw.rate(folder, do="enqueue", count=count, per_transaction=per_transaction)

    def _grouped(self, name: str, how: str, per_transaction: int, count: int) -> Scenario:
        return Scenario(
            name,
            "jobs/s",
            {
                HOLDFAST: lambda folder: self.holdfast.rate(folder, do="enqueue", how=how, count=count),
                RAW: lambda folder: self._raw_enqueue(folder, count, per_transaction),
            },
        )

    def _run_holdfast(self, folder: Path, processes: int, count: int, *, thread: bool = False) -> float:
        self.holdfast.fill(folder, count=count, thread=thread)
        rate = self.holdfast.run_rate(folder, processes, count, do="work", concurrency=CONCURRENCY)
        done = _count(folder, "SELECT count(*) FROM holdfast_job WHERE state = 'succeeded' AND result IS NOT NULL")
        if done != count:
            raise BenchError(f"{done} of {count} jobs are stored as succeeded")
        return rate

    def _run_peer(self, peer: Contender, folder: Path, processes: int, count: int, **request: Any) -> float:
        peer.fill(folder, count=count)
        return peer.run_rate(folder, processes, count, do="work", **request)

    def _run_peers(self, processes: int, count: int) -> dict[str, Callable[[Path], float | Values]]:
        def run(peer: Contender, **request: Any) -> Callable[[Path], float]:
            some = count // SLOW if peer is self.litequeue else count
            return lambda folder: self._run_peer(peer, folder, processes, some, **request)

        return {
            **{who: run(self.huey, threads=threads) for who, threads in HUEY_THREADS.items()},
            LITEQUEUE: run(self.litequeue, synced=True),
            LITEQUEUE_SHIPPED: run(self.litequeue, synced=False),
        }

    def _run_one(self, scale: Scale) -> Scenario:
        return Scenario(
            RUN_ONE,
            "jobs/s",
            {
                HOLDFAST: lambda folder: self._run_holdfast(folder, 1, scale.run),
                RAW: lambda folder: self.raw.rate(folder, do="work", count=scale.run),
                THREADS: lambda folder: self._run_holdfast(folder, 1, scale.run // 2, thread=True),
                **rows.at_defaults(self.holdfast, scale.run // 2),
                **self._run_peers(1, scale.run_peers),
            },
        )

    def _run_two(self, scale: Scale) -> Scenario:
        return Scenario(
            RUN_TWO,
            "jobs/s",
            {
                HOLDFAST: lambda folder: self._run_holdfast(folder, 2, scale.run),
                **self._run_peers(2, scale.run_peers),
            },
        )

    def _latency(self, scale: Scale) -> Scenario:
        def both(found: tuple[float, float]) -> Values:
            return {f"{P50}, ms": found[0], f"{P99}, ms": found[1]}

        return Scenario(
            "idle latency",
            "ms",
            {
                HOLDFAST: lambda folder: both(self.holdfast.latencies(folder, scale.latency, concurrency=CONCURRENCY)),
                HUEY: lambda folder: both(self.huey.latencies(folder, scale.latency_peers, threads=1)),
            },
        )

    def _idle_huey(self, folder: Path) -> AbstractContextManager[Child]:
        command = [self.peers, "-m", "huey.bin.huey_consumer", "bench.peers.huey_app.huey"]
        return self.huey.shell_worker(folder, command, lambda: _count(folder, "SELECT count(*) FROM task"))

    def _depth(self, depth: int, rounds: int) -> Scenario:
        def cost(who: str) -> Callable[[Path], float]:
            def measure(folder: Path) -> float:
                self.depth.fill(folder, depth=depth)
                return 1e6 / self.depth.rate(folder, do=who, rounds=rounds)

            return measure

        return Scenario(depth_name(depth), "µs/job", {HOLDFAST: cost("holdfast"), RAW: cost("raw")})

    def _imports(self, times: int) -> Scenario:
        def timed(python: str, statement: str) -> Callable[[Path], float]:
            _import_time(python, statement)  # compiles what is not compiled yet
            return lambda _: _import_time(python, statement)

        return Scenario(
            IMPORT,
            "ms",
            {
                HOLDFAST: timed(sys.executable, "from holdfast import Holdfast"),
                HUEY: timed(self.peers, "from huey import SqliteHuey"),
                LITEQUEUE: timed(self.peers, "from litequeue import LiteQueue"),
            },
            times,
        )


def _import_time(python: str, statement: str) -> float:
    script = (
        "import asyncio, json, time; start = time.perf_counter(); "
        f"{statement}; print(json.dumps(time.perf_counter() - start))"
    )
    ran = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise BenchError(f"{statement}: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout) * 1000


def _count(folder: Path, query: str) -> int:
    """Look into a database from outside, without writing to it."""
    connection = sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchone()[0]
    finally:
        connection.close()
