"""Bulk commands: a progress bar in a terminal, none in a pipe, and exact counts after Ctrl-C and kill -9."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from holdfast import Holdfast
from support.dead_jobs import make_dead
from support.terminal import HOLDFAST

COUNT = 3500
DIES = """
import os, signal, sys
from holdfast import Holdfast
def die(seen):
    os.kill(os.getpid(), signal.SIGKILL)
Holdfast(sys.argv[1]).sync.bulk.retry_dead(progress=die)
"""


@pytest.fixture
def url(terminal):
    url = f"sqlite:///{terminal.folder / 'holdfast.db'}"

    async def fill():
        async with Holdfast(f"{url}?synchronous=normal") as app:
            app.task(lambda: None, name="noop")
            await make_dead(app, COUNT)

    asyncio.run(fill())
    return url


def at_a_terminal(terminal, *words, interrupt_at=None):
    """Run a command whose standard error is a terminal; exit code, standard output, and the terminal's content."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*HOLDFAST, *words],
            cwd=terminal.folder,
            env=terminal.env | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the terminal is closed
            while data := os.read(ours, 4096):
                shown += data
                if interrupt_at is not None and interrupt_at in shown:
                    process.send_signal(signal.SIGINT)
                    interrupt_at = None
        output, _ = process.communicate(timeout=30)
        return process.returncode, output.decode(), shown.decode()
    finally:
        os.close(ours)


def test_a_terminal_shows_a_progress_bar(terminal, url):
    code, output, shown = at_a_terminal(terminal, "dlq", "retry", "--all")
    assert (code, output) == (0, f"{COUNT} jobs moved from DLQ to 'queued'.\n")
    assert f"{COUNT}/{COUNT}" in shown
    assert "retried" in shown
    code, output, shown = at_a_terminal(terminal, "purge", "--state", "queued", "--yes")
    assert (code, output) == (0, f"{COUNT} of {COUNT} queued jobs deleted.\n")
    assert f"{COUNT}/{COUNT}" in shown


def test_a_pipe_gets_only_the_counts(terminal, url):
    assert terminal("dlq", "retry", "--all", "--dry-run") == f"{COUNT} dead jobs match; none was retried.\n"
    assert terminal("dlq", "retry", "--all") == f"{COUNT} jobs moved from DLQ to 'queued'.\n"
    assert terminal("purge", "-s", "queued", "--yes") == f"{COUNT} of {COUNT} queued jobs deleted.\n"


def test_ctrl_c_stops_after_a_step_with_exact_counts(terminal, url):
    code, output, shown = at_a_terminal(terminal, "dlq", "retry", "--all", interrupt_at=b"retried")
    assert (code, output) == (130, "")
    done = terminal.states()["queued"]
    assert 0 < done < COUNT
    message = f"interrupted: {done} jobs matched, {done} retried; run the same `holdfast dlq retry --all` command"
    assert message in " ".join(shown.split())
    assert terminal("dlq", "retry", "--all") == f"{COUNT - done} jobs moved from DLQ to 'queued'.\n"
    assert terminal.states() == {"queued": COUNT}


def test_after_kill_9_the_same_command_continues(terminal, url):
    killed = subprocess.run([sys.executable, "-c", DIES, url], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert terminal.states() == {"queued": 1000, "dead": COUNT - 1000}
    assert terminal("dlq", "retry", "--all") == f"{COUNT - 1000} jobs moved from DLQ to 'queued'.\n"
    assert terminal.states() == {"queued": COUNT}
