"""The enqueue command: started, stored durably and gone in under 300 ms, where importing asyncio takes 60."""

import resource
import subprocess
import sys

from support.terminal import HOLDFAST


def cost(terminal, *command):
    """Seconds of a processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=terminal.folder, env=terminal.env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_enqueue_costs_less_than_five_times_as_much_as_importing_asyncio(terminal):
    enqueue = (*HOLDFAST, "enqueue", '{"command": "echo hi"}')
    asyncio = (sys.executable, "-c", "import asyncio")
    # By turns, so that both are as slow as the machine happens to be.
    costs = [(cost(terminal, *enqueue), cost(terminal, *asyncio)) for _ in range(7)]
    assert min(ours for ours, _ in costs) < 5 * min(bare for _, bare in costs)


def test_enqueue_imports_nothing_that_it_does_not_need(terminal):
    terminal.env["PYTHONPROFILEIMPORTTIME"] = "1"
    said = terminal("enqueue", '{"command": "echo hi"}')
    imported = {line.rpartition("|")[2].strip() for line in said.splitlines() if "|" in line}
    for heavy in ("rich", "textual", "holdfast.worker", "holdfast.testing", "psycopg", "redis", "pydantic"):
        assert heavy not in imported, heavy
    assert (terminal.folder / "holdfast.db").exists()
