"""Apps for tests of what a user sees, on every store that needs no server."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import hypothesis
import pytest
import pytest_asyncio

from holdfast import Holdfast
from holdfast.core.clock import SystemClock
from holdfast.store.open import open_store
from holdfast.store.protocol import Store
from support import durations, shared, sizes, skips

STORES = (pytest.param("memory", marks=(pytest.mark.extended, pytest.mark.memory)), "sqlite")
"""Memory only in `make test-all`: that the two behave alike is what the conformance tests check."""
DAILY = "not extended"
"""The markers of `make test`."""
SECONDS: dict[str, float] = defaultdict(float)
"""How long each test took, in the process that reports."""


MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 4 * 1024**3


def use_memory_for_files() -> None:
    """Keep the files of tests and of their servers in memory where there is room: thousands of commits wait for a disk.

    What a killed process has written survives it there as on a disk. TMPDIR or --basetemp choose another place.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_NEEDED:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_configure() -> None:
    """A shell starts a background run (`make test &`) with Ctrl-C ignored, and `nohup` one with hangups ignored.

    Programs that tests start would inherit that. They do not inherit a handler. And they keep compiled modules,
    whatever the shell says: hundreds of processes start, and compiling is half of what that takes.
    """
    use_memory_for_files()
    # How long an example takes says how busy the machine is.
    hypothesis.settings.register_profile("holdfast", deadline=None, max_examples=sizes.size(100))
    hypothesis.settings.load_profile("holdfast")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection() -> None:
    """Collecting makes hundreds of thousands of objects that stay: looking for garbage among them finds none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """And no test has to look through them again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Do not build tests that `make test` would deselect: every worker collects, and a quarter of all is `extended`."""
    if collector.config.option.markexpr != DAILY or not isinstance(obj, FunctionType | type):
        return None
    marks = getattr(obj, "pytestmark", ())
    return [] if isinstance(marks, list) and any(mark.name == "extended" for mark in marks) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of an app run once per store."""
    if "app_store" in metafunc.fixturenames:
        metafunc.parametrize("app_store", STORES[1:] if metafunc.config.option.markexpr == DAILY else STORES)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests with random examples have fewer of them in `make test`."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker("sized")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped a line for each reason: hundreds for one server that is not here would hide what failed."""
    for reason, times in _skipped(terminalreporter).most_common():
        terminalreporter.write_line(f"{times} skipped: {reason}")
    for line in skips.wrong(_skipped(terminalreporter)):
        terminalreporter.write_line(line, red=True)


def _skipped(reporter: pytest.TerminalReporter) -> Counter[str]:
    """How many tests were skipped for which reason."""
    reports = reporter.stats.get("skipped", ())
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)


@pytest.fixture
def app_url(app_store: str, tmp_path: Path) -> str:
    """A fresh store, once per kind."""
    return "memory://" if app_store == "memory" else f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest_asyncio.fixture
async def make_app(app_url: str) -> AsyncIterator[Callable[..., Holdfast]]:
    """Makes apps on the test's store; all are closed after the test. Another URL or store may be given first."""
    made: list[Holdfast] = []

    def make(store: Any = None, **settings: Any) -> Holdfast:
        app = Holdfast(app_url if store is None else store, **settings)
        made.append(app)
        return app

    yield make
    for app in made:
        await app.close()


@pytest.fixture
def app(make_app: Callable[..., Holdfast]) -> Holdfast:
    """An app on the test's store, unopened."""
    return make_app()


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What one test hushes, the next may want to hear."""
    loggers = [logging.getLogger(name) for name in ("holdfast", "asyncio")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have settings of their own."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        if name != "HOLDFAST_SEED":
            monkeypatch.delenv(name)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    shared.end()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.config.option.markexpr == DAILY:
        durations.REPORT.parent.mkdir(exist_ok=True)
        durations.REPORT.write_text(json.dumps(SECONDS))
    if reporter is not None:
        skips.record(session.config.option.markexpr, _skipped(reporter))
    if reporter is not None and session.exitstatus == pytest.ExitCode.OK and skips.wrong(_skipped(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest_asyncio.fixture
async def open_at() -> AsyncIterator[Callable[[str], Awaitable[Store]]]:
    """Opens stores by URL; all are closed after the test, before the servers of fixtures that it names first."""
    opened: list[Store] = []

    async def open_(url: str) -> Store:
        opened.append(store := open_store(url, SystemClock()))
        await store.open()
        return store

    yield open_
    for each in opened:
        await each.close()
