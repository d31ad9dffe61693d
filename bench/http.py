"""The HTTP run, on SQLite: submissions, beside a bare Starlette hello-world on the same server, and remote workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import rows
from .contender import Contender
from .environment import own_versions
from .measure import Figures
from .process import Child
from .rows import DEFAULT_ASYNC, DEFAULT_PLAIN, HOLDFAST
from .scale import Scale
from .scenario import Scenario, Values
from .targets import Verdict, judge_cancellation

HELLO = "Starlette hello-world"
DURABILITY = {
    HOLDFAST: "POST /v1/jobs with a key each, on SQLite: WAL, synchronous=FULL (its default); 201 means on disk. "
    "Workers have the server as their store",
    HELLO: "nothing is stored",
}
CONNECTIONS = (16, 1)
BATCHES = "jobs in batches of 1,000, 2 connections"
RUN_ONE = "run, one remote worker process"
P50, P99 = "idle latency, median", "idle latency, 99 %"
CONCURRENCY = 100


def name(connections: int) -> str:
    return f"requests, {connections} connection{'s' if connections > 1 else ''}"


class Http:
    """Two servers, one client."""

    def versions(self) -> dict[str, str]:
        return own_versions(["holdfast", "msgspec", "starlette", "uvicorn", "httptools", "uvloop"])

    def scenarios(self, scale: Scale) -> list[Scenario]:
        return [
            Scenario(
                name(connections),
                "requests/s",
                {
                    HOLDFAST: self._rate(
                        "holdfast", scale.grouped // 2 if connections > 1 else scale.singles, connections
                    ),
                    HELLO: self._rate("hello", scale.grouped if connections > 1 else scale.singles, connections),
                },
            )
            for connections in CONNECTIONS
        ] + [
            Scenario(BATCHES, "jobs/s", {HOLDFAST: self._rate("batch", max(4, scale.grouped // 1000), 2)}),
            Scenario(
                RUN_ONE,
                "jobs/s",
                {
                    HOLDFAST: lambda folder: self._run(folder, scale.run // 5),
                    **{
                        who: lambda folder, who=who: self._at_defaults(folder, who, scale.run // 5)
                        for who in (DEFAULT_PLAIN, DEFAULT_ASYNC)
                    },
                },
            ),
            Scenario("idle latency", "ms", {HOLDFAST: lambda folder: self._latency(folder, scale.latency)}),
            Scenario("cancel latency", "ms", {HOLDFAST: lambda folder: self._cancel_latency(folder, scale.latency)}),
        ]

    def _run(self, folder: Path, jobs: int) -> float:
        with _served(folder) as remote:
            remote.fill(folder, count=jobs)
            return remote.run_rate(folder, 1, jobs, do="work", concurrency=CONCURRENCY)

    def _at_defaults(self, folder: Path, who: str, jobs: int) -> float | Values:
        with _served(folder) as remote:
            return rows.at_defaults(remote, jobs)[who](folder)

    def _latency(self, folder: Path, count: int) -> Values:
        with _served(folder) as remote:
            median, worst = remote.latencies(folder, count, concurrency=CONCURRENCY)
        return {f"{P50}, ms": median, f"{P99}, ms": worst}

    def _cancel_latency(self, folder: Path, count: int) -> Values:
        with _served(folder) as remote:
            return rows.cancel_latency(remote, folder, count)

    def _rate(self, what: str, count: int, connections: int) -> Callable[[Path], float]:
        def measure(folder: Path) -> float:
            with _server(folder, "hello" if what == "hello" else "holdfast") as server:
                request = {"do": "load", "port": server.receive()["port"], "what": what, "count": count}
                words = json.dumps({**request, "connections": connections})
                with Child([sys.executable, "-m", "bench.http_load", words], {}) as client:
                    client.wait_until_ready()
                    client.send()
                    answer = client.receive()
                    return answer["jobs"] / answer["seconds"]

        return measure


def _server(folder: Path, what: str) -> Child:
    env = {"HOLDFAST_URL": f"sqlite:///{folder / 'jobs.db'}"}
    return Child([sys.executable, "-m", "bench.http_server", json.dumps({"do": what})], env)


@contextmanager
def _served(folder: Path) -> Iterator[Contender]:
    """Programs and workers whose store is a server."""
    with _server(folder, "holdfast") as server:
        url = f"http://127.0.0.1:{server.receive()['port']}"
        yield Contender(sys.executable, "bench.holdfast_side", lambda _: {"HOLDFAST_URL": url})


def judge_http(figures: Figures) -> list[Verdict]:
    ratios = figures.ratios((name(16), HOLDFAST), (name(16), HELLO))
    batches = figures.of(BATCHES, HOLDFAST).known
    return [
        Verdict("submissions, 16 connections", "≥ 0.35 of a bare Starlette hello-world", ratios, at_least=0.35),
        Verdict(BATCHES, "≥ 40,000 jobs/s", batches, at_least=40_000.0),
        judge_cancellation(figures),
    ]
