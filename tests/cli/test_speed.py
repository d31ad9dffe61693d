"""The enqueue command takes less than 300 ms, of which importing its libraries takes 75."""

import resource
import subprocess
import sys

import pytest

from support.terminal import HOLDFAST


def cost(terminal, *command):
    """CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=terminal.folder, env=terminal.env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.extended
def test_enqueue_costs_little_more_than_importing_its_libraries(terminal):
    enqueue = (*HOLDFAST, "enqueue", '{"command": "echo hi"}')
    libraries = (sys.executable, "-c", "import asyncio, msgspec, sqlite3")
    # Alternating runs, and the best of each, because the speed of the machine varies.
    costs = [(cost(terminal, *enqueue), cost(terminal, *libraries)) for _ in range(7)]
    assert min(ours for ours, _ in costs) < 3.5 * min(theirs for _, theirs in costs)


HEAVY = {
    "aiohttp",
    "asyncpg",
    "cloudpickle",
    "cronsim",
    "email",
    "hiredis",
    "holdfast.client.bulk",
    "holdfast.client.inspection",
    "holdfast.client.timeseries",
    "holdfast.demo",
    "holdfast.flows",
    "holdfast.http",
    "holdfast.observe.logs",
    "holdfast.observe.metrics",
    "holdfast.schedules",
    "holdfast.store.bucket",
    "holdfast.store.postgres",
    "holdfast.store.redis",
    "holdfast.store.reference.memory",
    "holdfast.store.remote",
    "holdfast.sync",
    "holdfast.testing",
    "holdfast.worker",
    "http.client",
    "importlib.metadata",
    "multiprocessing",
    "obstore",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "pydantic",
    "redis",
    "rich",
    "starlette",
    "textual",
    "typer",
    "unittest",
    "uvicorn",
    "uvloop",
    "xml",
    "zoneinfo",
}


def imported(terminal, *command):
    """The modules that a command imports, in a process that no fork server has started."""
    env = terminal.env | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(
        [*HOLDFAST, *command], cwd=terminal.folder, env=env, check=True, capture_output=True, text=True
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def test_enqueue_imports_no_unused_library(terminal):
    modules = imported(terminal, "enqueue", '{"command": "echo hi"}')
    assert modules & HEAVY == set()
    assert "holdfast.app" in modules
    assert (terminal.folder / "holdfast.db").exists()


def test_a_command_collects_garbage_as_usual_while_it_runs(terminal):
    code = """
import gc, sys
usual, during = gc.get_threshold(), []
from holdfast.cli import connect, main
from_app = connect.make_app
connect.make_app = lambda *given: during.append(gc.get_threshold()) or from_app(*given)
sys.argv = ["holdfast", "status", "--json"]
try:
    main.main()
except SystemExit:
    pass
assert during[0][0] > usual[0], during
assert gc.get_threshold() == usual
"""
    subprocess.run([sys.executable, "-c", code], cwd=terminal.folder, env=terminal.env, check=True, capture_output=True)


def test_the_version_needs_neither_a_loop_nor_an_app(terminal):
    modules = imported(terminal, "--version")
    assert modules & {"asyncio", "sqlite3", "holdfast.app"} == set()
    assert "typer" in modules
