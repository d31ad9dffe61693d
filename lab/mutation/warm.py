"""Runs pytest for one mutant after another, each in a fork of a process that has imported the third-party packages.

`command.py` starts this file as a script, from the copy of the tree that mutants are written into. It reads one request
a line from its standard input and answers each with a line. Holdfast, its tests and the lab are imported by each fork,
from the copy as it is then: nothing of them may be imported here.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

PRELOAD = (
    "aiohttp",
    "attrs",
    "cloudpickle",
    "hypothesis.extra",
    "hypothesis.stateful",
    "hypothesis.strategies",
    "msgspec",
    "obstore",
    "pydantic",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "sqlite3",
    "starlette.applications",
    "typer",
    "uvicorn",
    "xdist.plugin",
)
"""Packages that the tests of most areas import. One that is not installed is left out."""
LOOK = 0.01
"""Seconds between looks at whether a run has ended."""


class Order:
    """Runs the tests in the order that the request names, tests that it does not name first."""

    def __init__(self, order: list[str]) -> None:
        self._rank = {name: rank for rank, name in enumerate(order)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._rank.get(item.nodeid, -1))


class Measure:
    """Writes how long each test took; with `files`, also which of their functions it called."""

    def __init__(self, report: Path, files: list[str]) -> None:
        self._report = report
        self._files = {str(Path("src/holdfast", file).resolve()): file for file in files}
        self._seconds: dict[str, float] = defaultdict(float)
        self._called: dict[str, set[str]] = defaultdict(set)
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        if self._files:
            threading.settrace(self._trace)
            sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (file := self._files.get(frame.f_code.co_filename)) is not None:
            self._called[self._test].add(f"{file}:{frame.f_code.co_firstlineno}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        found = {
            name: {"seconds": seconds, "calls": sorted(self._called[name])} for name, seconds in self._seconds.items()
        }
        self._report.write_text(json.dumps(found))


def run(request: dict[str, Any]) -> int:
    """In a fork: run pytest in the copy; its exit code."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    plugins: list[object] = [Order(request["order"])]
    if request["report"]:
        plugins.append(Measure(Path(request["report"]), request["files"]))
    return int(pytest.main(request["args"], plugins))


def awaited(pid: int, limit: float | None) -> int | None:
    """The exit code of a fork; None where it took longer than the limit. Whatever it started ends with it."""
    deadline = None if limit is None else time.monotonic() + limit
    code = None
    while deadline is None or time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(LOOK)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if code is None:
        os.waitpid(pid, 0)
    return code


def main() -> None:
    for name in PRELOAD:
        with suppress(ImportError):
            importlib.import_module(name)
    tree = Path(__file__).resolve().parents[2]
    own = str(Path(__file__).resolve().parent)
    sys.path[:] = [str(tree / "src"), str(tree), *(path for path in sys.path if path != own)]
    assert not {"holdfast", "lab"} & sys.modules.keys()
    gc.freeze()
    for line in sys.stdin:
        begun = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            code = 99
            try:
                code = run(json.loads(line))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        answer = {"code": awaited(pid, json.loads(line)["limit"]), "seconds": time.monotonic() - begun}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
