"""Scenarios that every store has: a worker at its defaults or idle, cancellation, large payloads, flows, a command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from . import idle, look
from .contender import Contender
from .process import ROOT, BenchError, Child, environment
from .scenario import Scenario, Values

HOLDFAST, RAW = "Holdfast", "raw loop"
SYNC, RAW_BLOCKING = "Holdfast, app.sync", "raw loop, blocking driver"
THREADS = "Holdfast, thread tasks"
DEFAULT_PLAIN, DEFAULT_ASYNC = "Holdfast at its defaults, plain function", "Holdfast at its defaults, async"
BARE = "python -c pass"
PAYLOADS = "enqueue, 1 MB payloads"
CLIENT_MEMORY, SERVER_MEMORY = f"{PAYLOADS}, client memory", f"{PAYLOADS}, server memory"
FLOW = "flow of three jobs"
FLOW_ENQUEUE, FLOW_RUN = f"{FLOW}, enqueue", f"{FLOW}, run"
FLOW_ENQUEUE_CALLS, FLOW_RUN_CALLS = f"{FLOW}, store calls to enqueue", f"{FLOW}, store calls to run"
CANCEL_P50, CANCEL_P99 = "cancel latency, median", "cancel latency, 99 %"
COMMAND = "command that enqueues one job"
MEGABYTE = 1_000_000
COMMAND_LINE = str(Path(sys.executable).parent / "holdfast")

Measure = Callable[[Path], float | Values]


# -- run


def at_defaults(holdfast: Contender, count: int) -> dict[str, Measure]:
    """`holdfast worker start` without options, on an app of plain functions and on one of async functions."""

    def measure(app: str, *, thread: bool) -> Measure:
        def run(folder: Path) -> float:
            with holdfast.start(folder, do="watched", count=count, thread=thread) as watcher:
                watcher.wait_until_ready()
                os.sync()
                with Child(worker_command(app), worker_environment(holdfast, folder)) as worker:
                    watcher.send()
                    try:
                        answer = watcher.receive()
                    except BenchError:
                        worker.check_alive()
                        raise
            return answer["jobs"] / answer["seconds"]

        return run

    return {DEFAULT_PLAIN: measure("plain", thread=True), DEFAULT_ASYNC: measure("asynchronous", thread=False)}


def worker_command(app: str) -> list[str]:
    """In the foreground, so that its starter can end it; with all defaults, its log lines in a file."""
    return [COMMAND_LINE, "worker", "start", "-A", f"bench.holdfast_defaults:{app}", "--foreground"]


def worker_environment(holdfast: Contender, folder: Path) -> dict[str, str]:
    return {**holdfast.env(folder), "XDG_STATE_HOME": str(folder)}


# -- large payloads


def payloads(sides: Mapping[str, Contender], count: int, server: int | None = None, size: int = MEGABYTE) -> Scenario:
    """Holdfast by `enqueue_many`; the raw loop and the peers one by one. `server`: the process id of the store's."""

    def measure(side: Contender, count: int) -> Measure:
        def run(folder: Path) -> Values:
            with side.start(folder, do="payloads", count=count, size=size) as process:
                process.wait_until_ready()
                before = {pid: look.resident_megabytes(pid) for pid in (process.pid, *_family(server))}
                for pid in before:
                    look.reset_peak(pid)
                process.send()
                process.wait_until_ready()  # all is stored, and its connections are still open
                client = look.peak_megabytes(process.pid) - before[process.pid]
                grown = [look.peak_megabytes(pid) - before.get(pid, 0.0) for pid in _family(server)]
                process.send()
                answer = process.receive()
            found = {f"{PAYLOADS}, ms/job": 1000 * answer["seconds"] / count, f"{CLIENT_MEMORY}, MB": client}
            return {**found, f"{SERVER_MEMORY}, MB": max(grown)} if grown else found

        return run

    measured = {who: measure(side, count if who == HOLDFAST else -(-count // 4)) for who, side in sides.items()}
    return Scenario(PAYLOADS, "ms/job", measured)


def _family(pid: int | None) -> list[int]:
    return [] if pid is None else look.family(pid)


# -- an idle worker

Started = Callable[[Path], AbstractContextManager[Child]]


def idle_worker(
    holdfast: Contender,
    seconds: float,
    peers: Mapping[str, Started],
    traffic: Callable[[Path], idle.Traffic] = lambda _: idle.no_server,
) -> Scenario:
    """`traffic` is given the folder of the measurement."""

    @contextmanager
    def started(folder: Path) -> Generator[Child]:
        shell = Contender(holdfast.python, holdfast.module, lambda folder: worker_environment(holdfast, folder))
        waiting = lambda: holdfast.ask(folder, do="waiting")["jobs"]  # noqa: E731
        with shell.shell_worker(folder, worker_command("asynchronous"), waiting) as worker:
            yield worker

    def measure(start: Started, seconds: float) -> Measure:
        def run(folder: Path) -> Values:
            with start(folder) as worker:
                return idle.watch(worker, seconds, traffic(folder))

        return run

    watched = {HOLDFAST: measure(started, seconds), **{who: measure(one, seconds / 2) for who, one in peers.items()}}
    return Scenario("idle worker", "MB", watched)


# -- cancellation


def cancellation(holdfast: Contender, count: int) -> Scenario:
    """How long a running job of another process takes to hear that it was cancelled."""

    return Scenario("cancel latency", "ms", {HOLDFAST: lambda folder: cancel_latency(holdfast, folder, count)})


def cancel_latency(holdfast: Contender, folder: Path, count: int) -> Values:
    median, worst = holdfast.cancel_latencies(folder, count, concurrency=1)
    return {f"{CANCEL_P50}, ms": median, f"{CANCEL_P99}, ms": worst}


# -- flows


def flows(holdfast: Contender, count: int, raw: Contender | None = None, **peers: Contender) -> Scenario:
    """Two jobs, and a third that takes their results. Raw: three plain jobs in one transaction, and run in hundreds."""

    def measure(side: Contender) -> Measure:
        def run(folder: Path) -> Values:
            answer = side.ask(folder, do="flows", count=count)
            calls = {FLOW_ENQUEUE_CALLS: "enqueue_calls", FLOW_RUN_CALLS: "run_calls"}
            return {
                f"{FLOW_ENQUEUE}, flows/s": count / answer["enqueue"],
                f"{FLOW_RUN}, flows/s": count / answer["run"],
                **{f"{name}, calls": answer[found] for name, found in calls.items() if found in answer},
            }

        return run

    def bare(folder: Path) -> Values:
        assert raw is not None
        return {
            f"{FLOW_ENQUEUE}, flows/s": raw.rate(folder, do="enqueue", count=3 * count, per_transaction=3) / 3,
            f"{FLOW_RUN}, flows/s": raw.rate(folder, do="work", count=3 * count) / 3,
        }

    sides = {who: measure(side) for who, side in {HOLDFAST: holdfast, **peers}.items()}
    return Scenario(FLOW, "flows/s", sides if raw is None else {**sides, RAW: bare})


# -- a command


def command(holdfast: Contender, times: int, **peers: tuple[Contender, list[str]]) -> Scenario:
    """From the start of a process to its end, beside an interpreter that does nothing. Peers: contender and command."""

    def measure(side: Contender, words: list[str]) -> Measure:
        def run(folder: Path) -> float:
            side.fill(folder, count=1)  # the store is there
            _run_command(words, side.env(folder))  # and everything is compiled
            return _run_command(words, side.env(folder))

        return run

    sides = {HOLDFAST: (holdfast, [COMMAND_LINE, "enqueue", "--", "true"]), **peers}
    bare: Measure = lambda _: _run_command([sys.executable, "-c", "pass"], {})  # noqa: E731
    return Scenario(COMMAND, "ms", {BARE: bare, **{who: measure(*how) for who, how in sides.items()}}, times)


def _run_command(words: list[str], env: Mapping[str, str]) -> float:
    """Milliseconds that it took."""
    start = time.perf_counter()
    ran = subprocess.run(words, cwd=ROOT, env=environment(env), capture_output=True, text=True, check=False)
    took = time.perf_counter() - start
    if ran.returncode:
        raise BenchError(f"{' '.join(words)} ended with {ran.returncode}\n{ran.stderr[-2000:]}")
    return took * 1000
