"""The bucket run: Holdfast on a folder with 50 ms on every request, beside the whole queue in one object."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import rows
from .contender import Contender
from .environment import own_versions
from .measure import Figures
from .process import PATIENCE, ROOT, BenchError
from .rows import HOLDFAST, SYNC
from .scale import Scale
from .scenario import Scenario, Values
from .targets import Verdict, judge_cancellation

DIRECT, GROUPED = "one object, each its own", "one object, group commit"
DURABILITY = {
    HOLDFAST: "a folder, each entry synced before it is linked; leases, fences, retries and results on",
    DIRECT: "in memory, one read and one conditional write per operation; no leases, fences, results or retries",
    GROUPED: "the same, but all that waits shares one read and one write of the whole queue",
}
DELAY = 0.05
CALLERS, BACKLOG = 1000, 10_000
ONE = "enqueue, claim and settle, 1,000 callers"
DEEP = "the same, 10,000 jobs queued"
REQUESTS, SLOWEST = "requests per job", "slowest operation"
SINGLES, RUN_ONE = "enqueue, one at a time (no delay)", "run, one worker process (no delay)"
P50, P99 = "idle latency, median", "idle latency, 99 %"
CONCURRENCY = 100


def many_name(writers: int) -> str:
    return f"the same, {writers} writer processes, 64 callers each"


MANY = many_name(16)
FEW = 1000
"""Jobs of a backlog that is made one commit at a time."""
KINDS: dict[str, dict[str, Any]] = {
    "in bulk": {"rounds": 20},
    "keyed": {"rounds": 20, "key": True},
    "one by one": {"rounds": 1, "at_once": 1},
    "one by one, 1 KB each": {"rounds": 1, "at_once": 1, "size": 1000},
}


def depth_name(depth: int, kind: str = "in bulk") -> str:
    return f"{kind}, {depth:,} jobs queued"


class Bucket:
    """Every measurement is a process of its own, or several."""

    def __init__(self) -> None:
        self.holdfast = Contender(
            sys.executable, "bench.holdfast_side", lambda folder: {"HOLDFAST_URL": f"file://{folder}/bucket"}
        )

    def versions(self) -> dict[str, str]:
        return own_versions(["holdfast", "msgspec"])

    def scenarios(self, scale: Scale) -> list[Scenario]:
        seconds = scale.seconds
        return [
            Scenario(ONE, "jobs/s", {HOLDFAST: lambda folder: self._through(folder, ONE, seconds, callers=CALLERS)}),
            *[Scenario(many_name(each), "jobs/s", {HOLDFAST: self._writers(each, seconds)}) for each in (2, 4, 16)],
            Scenario(
                DEEP,
                "jobs/s",
                {
                    HOLDFAST: lambda folder: self._through(folder, DEEP, seconds, callers=CALLERS, fill=BACKLOG),
                    DIRECT: lambda _: _side(do="direct", delay=DELAY, callers=8, seconds=seconds, fill=BACKLOG)["rate"],
                    GROUPED: lambda _: _side(do="grouped", delay=DELAY, callers=CALLERS, seconds=seconds, fill=BACKLOG)[
                        "rate"
                    ],
                },
            ),
            *[Scenario(depth_name(depth), "µs", {HOLDFAST: self._depth(depth)}) for depth in scale.depths],
            Scenario(depth_name(100_000, "keyed"), "µs", {HOLDFAST: self._depth(100_000, "keyed")}),
            *[
                Scenario(depth_name(FEW, kind), "µs", {HOLDFAST: self._depth(FEW, kind)})
                for kind in ("one by one", "one by one, 1 KB each")
            ],
            Scenario(
                SINGLES,
                "jobs/s",
                {
                    who: lambda folder, how=how: self.holdfast.rate(
                        folder, do="enqueue", how=how, count=scale.singles // 5
                    )
                    for who, how in ((HOLDFAST, "singles"), (SYNC, "sync"))
                },
            ),
            Scenario(
                RUN_ONE,
                "jobs/s",
                {
                    HOLDFAST: lambda folder: self._run(folder, scale.run // 2),
                    **rows.at_defaults(self.holdfast, scale.run // 2),
                },
            ),
            Scenario("idle latency", "ms", {HOLDFAST: lambda folder: self._latency(folder, scale.latency)}),
            rows.cancellation(self.holdfast, scale.latency),
            rows.idle_worker(self.holdfast, scale.idle, {}),
            rows.payloads({HOLDFAST: self.holdfast}, scale.payloads),
            rows.flows(self.holdfast, scale.flows),
        ]

    def _latency(self, folder: Path, count: int) -> Values:
        median, worst = self.holdfast.latencies(folder, count, concurrency=CONCURRENCY)
        return {f"{P50}, ms": median, f"{P99}, ms": worst}

    def _run(self, folder: Path, jobs: int) -> float:
        self.holdfast.fill(folder, count=jobs)
        return self.holdfast.run_rate(folder, 1, jobs, do="work", concurrency=CONCURRENCY)

    def _through(self, folder: Path, name: str, seconds: float, **more: Any) -> Values:
        found = _side(do="holdfast", folder=str(folder / "bucket"), delay=DELAY, seconds=seconds, **more)
        return {
            f"{name}, jobs/s": found["rate"],
            f"{REQUESTS}: {name}, requests": found["requests"],
            f"{SLOWEST}: {name}, s": found["slowest"],
        }

    def _writers(self, writers: int, seconds: float) -> Callable[[Path], Values]:
        def measure(folder: Path) -> Values:
            request = {"do": "holdfast", "folder": str(folder / "bucket"), "delay": DELAY, "callers": 64}
            found, name = _sides([{**request, "seconds": seconds}] * writers), many_name(writers)
            rate = sum(each["rate"] for each in found)
            return {
                f"{name}, jobs/s": rate,
                f"{REQUESTS}: {name}, requests": sum(each["rate"] * each["requests"] for each in found) / rate,
                f"{SLOWEST}: {name}, s": max(each["slowest"] for each in found),
                f"slowest writer's share: {name}, jobs/s": min(each["rate"] for each in found),
            }

        return measure

    def _depth(self, depth: int, kind: str = "in bulk") -> Callable[[Path], Values]:
        def measure(folder: Path) -> Values:
            place, name = str(folder / "bucket"), depth_name(depth, kind)
            found = _side(do="depth", folder=place, depth=depth, **KINDS[kind])
            joined = _side(do="join", folder=place)
            return {
                f"{name}, µs": found["micros"],
                f"bytes per job: {name}, B": found["bytes"],
                f"{REQUESTS}: {name}, requests": found["requests"],
                f"bytes per job enqueued: {name}, B": found["fill_bytes"],
                f"joining: {name}, s": joined["seconds"],
                f"memory per queued job: {name}, B": joined["memory"],
            }

        return measure


def _side(**request: Any) -> dict[str, float]:
    return _sides([request])[0]


def _sides(requests: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Processes that measure themselves, at the same time."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.bucket_side", json.dumps(request)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for request in requests
    ]
    answers = [process.communicate(timeout=PATIENCE) for process in started]
    for process, (_, trouble) in zip(started, answers, strict=True):
        if process.returncode != 0:
            raise BenchError(trouble[-2000:])
    return [json.loads(answer.splitlines()[-1]) for answer, _ in answers]


def judge_bucket(figures: Figures, depths: tuple[int, ...]) -> list[Verdict]:
    def plain(scenario: str) -> list[float]:
        return figures.of(scenario, HOLDFAST).known

    def cost_ratios(what: str) -> list[float]:
        shallow, deep = (f"{what}: {depth_name(depth)}" for depth in (depths[0], depths[-1]))
        return figures.ratios((deep, HOLDFAST), (shallow, HOLDFAST))

    deep = figures.ratios((DEEP, HOLDFAST), (DEEP, DIRECT))
    return [
        Verdict(ONE, "≥ 4,000 jobs/s at 50 ms a request", plain(ONE), at_least=4000.0),
        Verdict(REQUESTS, "≤ 0.01 at that load", plain(f"{REQUESTS}: {ONE}"), at_most=0.01),
        Verdict(MANY, "≥ 500 jobs/s", plain(MANY), at_least=500.0),
        Verdict(f"{SLOWEST}, 16 writers", "≤ 5 s", plain(f"{SLOWEST}: {MANY}"), at_most=5.0),
        Verdict(DEEP, "≥ 20 times a single object", deep, at_least=20.0),
        Verdict(
            f"bytes per job, depth {depths[0]:,} → {depths[-1]:,}",
            "≤ 1.5 times",
            cost_ratios("bytes per job"),
            at_most=1.5,
        ),
        Verdict(
            f"requests per job, depth {depths[0]:,} → {depths[-1]:,}", "≤ 1.5 times", cost_ratios(REQUESTS), at_most=1.5
        ),
        Verdict(
            "run at defaults, plain function, no delay",
            "≥ 8,000 jobs/s",
            figures.of(RUN_ONE, rows.DEFAULT_PLAIN).known,
            at_least=8000.0,
        ),
        judge_cancellation(figures),
    ]
