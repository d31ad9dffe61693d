"""The Postgres run: Holdfast beside pgqueuer, Procrastinate, SAQ, Oban and the raw loop, on one durable server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import asyncpg

from . import rows
from .contender import Contender
from .environment import newer_python_of, own_versions, python_of, versions_in
from .idle import Traffic, postgres_traffic
from .process import ROOT
from .rows import HOLDFAST, RAW, RAW_BLOCKING, SYNC, THREADS
from .scale import Scale
from .scenario import Scenario, Values

PGQUEUER, PROCRASTINATE, SAQ, OBAN = "pgqueuer", "Procrastinate", "SAQ", "Oban"
PROCRASTINATE_PLAIN, PROCRASTINATE_BLOCKING = "Procrastinate, plain functions", "Procrastinate, blocking"
CONCURRENCY = 100
DURABILITY = dict.fromkeys((HOLDFAST, RAW, PGQUEUER, PROCRASTINATE, SAQ, OBAN), "fsync=on, synchronous_commit=on")
SINGLES, GROUPED, BULK = "enqueue, one at a time", "enqueue, 100 at once", "enqueue, 1,000 in bulk"
RUN_ONE, RUN_TWO = "run, one worker process", "run, two worker processes"
P50, P99 = "idle latency, median", "idle latency, 99 %"


def depth_name(depth: int) -> str:
    return f"claim and settle at depth {depth:,}"


class Postgres:
    """Who takes part, and how each is asked. Every measurement has a database of its own."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.postgres import DURABLE, PostgresServer

        self.server = PostgresServer(options=(*DURABLE, "-c", "max_wal_size=4GB")).start()
        self._databases: dict[str, str] = {}
        self.peers = python_of("postgres")
        self.holdfast = Contender(sys.executable, "bench.holdfast_side", lambda f: {"HOLDFAST_URL": self.url(f)})
        self.raw = Contender(sys.executable, "bench.postgres_raw", self.place)
        self.others = {
            PGQUEUER: Contender(self.peers, "bench.peers.pgqueuer_side", self.place),
            PROCRASTINATE: Contender(self.peers, "bench.peers.procrastinate_side", self.place),
            SAQ: Contender(self.peers, "bench.peers.saq_side", self.place),
        }
        self.newer = newer_python_of("postgres", (3, 12))
        if self.newer is None:
            print("Oban's Python port needs Python 3.12, which was not found: measured without it.", file=sys.stderr)
        else:
            self.others[OBAN] = Contender(self.newer, "bench.peers.oban_side", self.place)

    def close(self) -> None:
        self.server.remove()

    def place(self, folder: Path) -> dict[str, str]:
        return {"BENCH_URL": self.url(folder)}

    def url(self, folder: Path) -> str:
        """The database that belongs to a measurement's folder."""
        name = self._databases.get(str(folder))
        if name is None:
            for old in self._databases.values():
                asyncio.run(self._execute(f"DROP DATABASE IF EXISTS {old} WITH (FORCE)"))
            self._databases = {str(folder): (name := f"bench_{abs(hash(str(folder))) % 10**12}")}
            asyncio.run(self._execute(f"CREATE DATABASE {name}"))
            asyncio.run(self._execute("CHECKPOINT"))
        return self.server.url.removesuffix("/postgres") + f"/{name}"

    async def _execute(self, statement: str) -> Any:
        """In a database that is not measured; the first value of the answer, if there is one."""
        connection = await asyncpg.connect(self.server.url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    def _traffic(self, folder: Path) -> Traffic:
        """Autovacuum rests meanwhile: the server counts its transactions too."""
        name = self.url(folder).rpartition("/")[2]
        count = f"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{name}'"
        counted = postgres_traffic(lambda: asyncio.run(self._execute(count)))
        self._set_autovacuum("off")

        def traffic(seconds: float) -> Mapping[str, float]:
            try:
                return counted(seconds)
            finally:
                self._set_autovacuum("on")

        return traffic

    def _set_autovacuum(self, value: str) -> None:
        asyncio.run(self._execute(f"ALTER SYSTEM SET autovacuum = {value}"))
        asyncio.run(self._execute("SELECT pg_reload_conf()"))

    def versions(self) -> dict[str, str]:
        ours = own_versions(["holdfast", "asyncpg", "msgspec"])
        return {
            "postgres": str(self.server.major),
            **ours,
            **versions_in(self.peers, ["pgqueuer", "procrastinate", "saq"]),
            **({} if self.newer is None else versions_in(self.newer, ["oban"])),
        }

    def scenarios(self, scale: Scale) -> list[Scenario]:
        peers = scale.run_peers
        defer = [self.peers, "-m", "procrastinate", "--app=bench.peers.procrastinate_side.app", "defer", "nothing"]
        return [
            self._enqueue(SINGLES, "singles", 1, scale.singles // 2, tuple(self.others)),
            self._enqueue(GROUPED, "callers", 100, scale.grouped, tuple(self.others)),
            self._enqueue(BULK, "bulk", 1000, scale.grouped, tuple(self._with_oban(PGQUEUER, PROCRASTINATE))),
            Scenario(
                RUN_ONE,
                "jobs/s",
                {
                    HOLDFAST: lambda folder: self._run(self.holdfast, folder, 1, scale.run, concurrency=CONCURRENCY),
                    RAW: lambda folder: self.raw.rate(folder, do="work", count=scale.run),
                    THREADS: lambda folder: self._run(
                        self.holdfast, folder, 1, scale.run // 2, concurrency=CONCURRENCY, thread=True
                    ),
                    **rows.at_defaults(self.holdfast, scale.run // 2),
                    PGQUEUER: lambda folder: self._run(self.others[PGQUEUER], folder, 1, scale.run),
                    PROCRASTINATE: lambda folder: self._run(self.others[PROCRASTINATE], folder, 1, peers // 2),
                    PROCRASTINATE_PLAIN: lambda folder: self._run(
                        self.others[PROCRASTINATE], folder, 1, peers // 4, thread=True
                    ),
                    **{
                        who: lambda folder, who=who: self._run(
                            self.others[who], folder, 1, peers // 2, count=peers // 2
                        )
                        for who in self._with_oban(SAQ)
                    },
                },
            ),
            Scenario(
                RUN_TWO,
                "jobs/s",
                {
                    HOLDFAST: lambda folder: self._run(self.holdfast, folder, 2, scale.run, concurrency=CONCURRENCY),
                    PGQUEUER: lambda folder: self._run(self.others[PGQUEUER], folder, 2, scale.run),
                },
            ),
            self._latency(scale),
            rows.cancellation(self.holdfast, scale.latency),
            rows.idle_worker(
                self.holdfast,
                scale.idle,
                {who: self.others[who].ready_worker for who in (PGQUEUER, PROCRASTINATE)},
                self._traffic,
            ),
            rows.payloads(
                {HOLDFAST: self.holdfast, RAW: self.raw, PGQUEUER: self.others[PGQUEUER]}, scale.payloads, self._pid()
            ),
            rows.flows(self.holdfast, scale.flows, self.raw),
            rows.command(self.holdfast, scale.imports // 2, Procrastinate=(self.others[PROCRASTINATE], defer)),
            *[self._depth(depth, scale.depth_rounds) for depth in scale.depths],
        ]

    def _with_oban(self, *others: str) -> list[str]:
        """These, and Oban where there is a Python for it."""
        return [*others, *([OBAN] if OBAN in self.others else [])]

    def _enqueue(self, name: str, how: str, per: int, count: int, peers: tuple[str, ...]) -> Scenario:
        def peer(who: str) -> Callable[[Path], float]:
            few = min(count, {"singles": 2000, "bulk": count if who == PGQUEUER else 10_000}.get(how, 4_000))
            return lambda folder: self.others[who].rate(folder, do="enqueue", how=how, count=few)

        ours: dict[str, rows.Measure] = {
            HOLDFAST: lambda folder: self.holdfast.rate(folder, do="enqueue", how=how, count=count),
            RAW: lambda folder: self.raw.rate(folder, do="enqueue", count=count, per_transaction=per),
        }
        if how == "singles":
            procrastinate = self.others[PROCRASTINATE]
            ours[SYNC] = lambda folder: self.holdfast.rate(folder, do="enqueue", how="sync", count=count)
            ours[RAW_BLOCKING] = lambda folder: self.raw.rate(folder, do="enqueue_blocking", count=count)
            ours[PROCRASTINATE_BLOCKING] = lambda folder: procrastinate.rate(
                folder, do="enqueue", how="sync", count=min(count, 2000)
            )
        return Scenario(name, "jobs/s", {**ours, **{who: peer(who) for who in peers}})

    def _pid(self) -> int:
        assert self.server.process is not None
        return self.server.process.pid

    def _run(
        self, one: Contender, folder: Path, processes: int, jobs: int, *, thread: bool = False, **request: Any
    ) -> float:
        one.fill(folder, count=jobs, **({"thread": True} if thread else {}))
        return one.run_rate(folder, processes, jobs, do="work", **request)

    def _latency(self, scale: Scale) -> Scenario:
        def both(one: Contender, count: int, **request: Any) -> Callable[[Path], Values]:
            def measure(folder: Path) -> Values:
                median, worst = one.latencies(folder, count, **request)
                return {f"{P50}, ms": median, f"{P99}, ms": worst}

            return measure

        return Scenario(
            "idle latency",
            "ms",
            {
                HOLDFAST: both(self.holdfast, scale.latency, concurrency=CONCURRENCY),
                **{who: both(one, scale.latency_peers) for who, one in self.others.items()},
            },
        )

    def _depth(self, depth: int, rounds: int) -> Scenario:
        return Scenario(
            depth_name(depth),
            "µs/job",
            {HOLDFAST: lambda folder: 1e6 / self.raw.rate(folder, do="depth", depth=depth, rounds=rounds)},
        )
