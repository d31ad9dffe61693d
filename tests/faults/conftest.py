"""Real processes on real stores: what they share."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.gates import Gates
from support.journal import Journal
from support.look import looking
from support.processes import Processes
from support.stores import EVERY, store

from support.forks import fork_server

HERE = Path(__file__).parent


@pytest.fixture(params=EVERY)
def store_url(request, tmp_path):
    with store(request.param, tmp_path) as url:
        yield url


ON_EVERY_STORE = {
    "test_every_job_finishes_once_when_a_worker_is_killed_at_a_random_moment",
    "test_every_acknowledged_job_survives_kill_9_of_its_enqueuer",
}
"""The faults that every run has on every store. The others are on SQLite; `make test-all` has them everywhere."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE and getattr(item, "originalname", "") not in ON_EVERY_STORE:
            params = getattr(item, "callspec", None)
            kinds = set(EVERY) & set(map(str, params.params.values())) if params else ()
            if kinds and "sqlite" not in kinds:
                item.add_marker(pytest.mark.extended)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


@pytest.fixture
def gates(journal):
    return Gates(journal.path)


@pytest.fixture
def look(store_url, journal, processes):
    with looking(store_url, journal) as look:
        yield look
        processes.close()  # first: a stopped one may hold a lock that closing needs


@pytest.fixture
def processes(request, store_url, tmp_path):
    """Starts processes on the test's store. If it fails, it is shown what they said."""
    processes = Processes(store_url, tmp_path, fork_server())
    yield processes
    processes.close()
    report = getattr(request.node, "report_of_call", None)
    if report is not None and report.failed:
        for process in processes:
            print(f"--- {process.last_seen}\n{process.output()[-4000:]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.report_of_call = report
    return report


@pytest.fixture
def chance():
    """Randomness whose seed is printed, and given back by HOLDFAST_SEED."""
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    return random.Random(seed)
