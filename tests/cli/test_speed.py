"""The enqueue command takes less than 300 ms, of which importing its libraries takes 85."""

import resource
import subprocess
import sys

from support.terminal import HOLDFAST


def cost(terminal, *command):
    """CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=terminal.folder, env=terminal.env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_enqueue_costs_little_more_than_importing_its_libraries(terminal):
    enqueue = (*HOLDFAST, "enqueue", '{"command": "echo hi"}')
    libraries = (sys.executable, "-c", "import asyncio, msgspec, sqlite3, typer")
    # Alternating runs, and the best of each, because the speed of the machine varies.
    costs = [(cost(terminal, *enqueue), cost(terminal, *libraries)) for _ in range(7)]
    assert min(ours for ours, _ in costs) < 3.5 * min(theirs for _, theirs in costs)


def test_enqueue_imports_no_unused_library(terminal):
    terminal.env["PYTHONPROFILEIMPORTTIME"] = "1"
    output = terminal("enqueue", '{"command": "echo hi"}')
    imported = {line.rpartition("|")[2].strip() for line in output.splitlines() if "|" in line}
    for heavy in ("rich", "textual", "holdfast.worker", "holdfast.testing", "psycopg", "redis", "pydantic"):
        assert heavy not in imported, heavy
    assert (terminal.folder / "holdfast.db").exists()
