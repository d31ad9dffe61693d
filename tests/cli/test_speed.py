"""The enqueue command: started, stored durably and gone in under 300 ms, as far as the machine's load allows."""

import resource
import subprocess

from support.terminal import HOLDFAST


def cost(terminal, *words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*HOLDFAST, *words], cwd=terminal.folder, env=terminal.env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_enqueue_costs_less_than_300_ms_of_a_processor(terminal):
    assert min(cost(terminal, "enqueue", '{"command": "echo hi"}') for _ in range(5)) < 0.3


def test_enqueue_imports_nothing_that_it_does_not_need(terminal):
    terminal.env["PYTHONPROFILEIMPORTTIME"] = "1"
    said = terminal("enqueue", '{"command": "echo hi"}')
    imported = {line.rpartition("|")[2].strip() for line in said.splitlines() if "|" in line}
    for heavy in ("rich", "textual", "holdfast.worker", "holdfast.testing", "psycopg", "redis", "pydantic"):
        assert heavy not in imported, heavy
    assert (terminal.folder / "holdfast.db").exists()
