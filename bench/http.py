"""The HTTP run: submissions to `holdfast serve` on SQLite, beside a bare Starlette; a remote worker's latency."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from . import rows
from . import sqlite as names
from .contender import Contender
from .environment import own_versions
from .measure import Figures
from .process import Child
from .scale import Scale
from .scenario import Scenario, Values
from .targets import Verdict, judge_cancellation

HOLDFAST, HELLO = "Holdfast", "Starlette hello-world"
DURABILITY = {
    HOLDFAST: "POST /v1/jobs with a key each, on SQLite: WAL, synchronous=FULL (its default); 201 means on disk",
    HELLO: "nothing is stored",
}
CONNECTIONS = (16, 1)
BATCHES = "jobs in batches of 1,000, 2 connections"


def name(connections: int) -> str:
    return f"requests, {connections} connection{'s' if connections > 1 else ''}"


def server_command(what: str) -> list[str]:
    return [sys.executable, "-m", "bench.http_server", json.dumps({"do": what})]


@contextmanager
def remote(folder: Path) -> Generator[Contender]:
    """Processes whose store is a server on a new SQLite file."""
    with Child(server_command("holdfast"), {"HOLDFAST_URL": f"sqlite:///{folder / 'jobs.db'}"}) as server:
        url = f"http://127.0.0.1:{server.receive()['port']}"
        yield Contender(sys.executable, "bench.holdfast_side", lambda _: {"HOLDFAST_URL": url})


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
            Scenario("idle latency", "ms", {HOLDFAST: lambda folder: self._latency(folder, scale.latency)}),
            Scenario("cancel latency", "ms", {HOLDFAST: lambda folder: self._cancel_latency(folder, scale.latency)}),
        ]

    def _latency(self, folder: Path, count: int) -> Values:
        with remote(folder) as holdfast:
            median, worst = holdfast.latencies(folder, count, concurrency=100)
        return {f"{names.P50}, ms": median, f"{names.P99}, ms": worst}

    def _cancel_latency(self, folder: Path, count: int) -> Values:
        with remote(folder) as holdfast:
            return rows.cancel_latency(holdfast, folder, count)

    def _rate(self, what: str, count: int, connections: int) -> Callable[[Path], float]:
        def measure(folder: Path) -> float:
            env = {"HOLDFAST_URL": f"sqlite:///{folder / 'jobs.db'}"}
            served = "hello" if what == "hello" else "holdfast"
            with Child(server_command(served), env) as server:
                request = {"do": "load", "port": server.receive()["port"], "what": what, "count": count}
                words = json.dumps({**request, "connections": connections})
                with Child([sys.executable, "-m", "bench.http_load", words], {}) as client:
                    client.wait_until_ready()
                    client.send()
                    answer = client.receive()
                    return answer["jobs"] / answer["seconds"]

        return measure


def judge_http(figures: Figures) -> list[Verdict]:
    ratios = figures.ratios((name(16), HOLDFAST), (name(16), HELLO))
    batches = figures.of(BATCHES, HOLDFAST).known
    return [
        Verdict("submissions, 16 connections", "≥ 0.35 of a bare Starlette hello-world", ratios, at_least=0.35),
        Verdict(BATCHES, "≥ 40,000 jobs/s", batches, at_least=40_000.0),
        judge_cancellation(figures),
    ]
