"""kill -9 of the supervisor, a worker, the process of a job, or all: every job ends and no process is left."""

import json
import subprocess
import sys

import pytest

from support.terminal import kill

LEASE = "2"
# At most two runs write `run`; a double-forked child must not outlive its job either.
COMMAND = "echo run >> runs; (setsid sleep 300 &); (setsid setsid sh -c 'sleep 301 & sleep 302' &); sleep 1.5; echo ok"


@pytest.fixture
def at_work(terminal):
    """Two workers and three running jobs; a failed job is not retried during a test."""
    terminal("config", "set", "retry_base", "600")
    terminal("config", "set", "retry_jitter", "0")
    terminal("worker", "start", "--count", "2", "--lease", LEASE)
    jobs = [{"id": f"j{n}", "command": COMMAND} for n in range(3)]
    terminal("enqueue", "-", stdin="\n".join(map(json.dumps, jobs)))
    terminal.until(lambda: (terminal.folder / "runs").exists() and terminal.states() == {"running": 3})
    return terminal


def processes(terminal, word):
    return [pid for pid, words in terminal.process_table().items() if word in words]


def all_succeeded(terminal):
    return terminal.until(lambda: terminal.states() == {"succeeded": 3})


def nothing_left(terminal):
    terminal("worker", "stop")
    terminal.until(lambda: not terminal.process_table())
    terminal.until(lambda: not terminal.workers())


def test_kill_of_a_worker(at_work):
    kill(at_work.workers()[0]["pid"])
    all_succeeded(at_work)
    at_work.until(lambda: len(at_work.workers()) == 2)
    assert processes(at_work, "sleep 30") == []
    nothing_left(at_work)


def test_kill_of_a_worker_on_a_folder(terminal):
    """Its supervisor sends heartbeats without the jobs, and loads them to recover those of the worker."""
    terminal.env["HOLDFAST_URL"] = f"file://{terminal.folder}/jobs"
    terminal("worker", "start", "--lease", "600")
    terminal("enqueue", '{"id": "j", "command": "echo run >> runs; test $(wc -l < runs) -gt 1 || sleep 300"}')
    terminal.until((terminal.folder / "runs").exists)
    kill(terminal.workers()[0]["pid"])
    terminal.until(lambda: terminal.states() == {"succeeded": 1})
    nothing_left(terminal)


def test_kill_of_the_supervisor(at_work):
    [supervisor] = at_work.supervisors()
    kill(supervisor)
    # Workers without a supervisor cannot be stopped by a command: they finish their jobs and exit.
    at_work.until(lambda: not at_work.process_table())
    at_work.until(lambda: not at_work.workers())
    at_work("worker", "start", "--lease", LEASE)
    all_succeeded(at_work)
    nothing_left(at_work)


def test_kill_of_the_jobs_own_processes(at_work):
    for pid in processes(at_work, "process_guard.py") + processes(at_work, "/bin/sh -c"):
        kill(pid)
    at_work.until(lambda: not processes(at_work, "sleep 30"))
    at_work.until(lambda: not at_work.states().keys() - {"failed", "succeeded"})
    failed = [one for one in at_work.json("list")["jobs"] if one["state"] == "failed"]
    assert failed
    guard = "killed with its parent process, a process guard of Holdfast"
    assert {one["error"] for one in failed} <= {guard, "killed by signal 9"}
    for one in failed:
        assert "moved from" in at_work("retry", one["id"])
    all_succeeded(at_work)
    nothing_left(at_work)


def test_kill_of_everything_at_once(at_work):
    everything = at_work.process_table()
    for word in ("background", "member", "process_guard.py", "/bin/sh -c"):
        for pid in [pid for pid, words in everything.items() if word in words]:
            kill(pid)
    at_work("worker", "start", "--count", "2", "--lease", LEASE)
    all_succeeded(at_work)
    at_work.until(lambda: not processes(at_work, "sleep 30"))
    nothing_left(at_work)


def test_a_second_ctrl_c_while_the_command_exits_changes_nothing():
    code = (
        "import atexit, os, signal\n"
        "from holdfast.cli.main import run\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "run(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_second_ctrl_c_ends_a_command_that_does_not_end_at_the_first():
    code = (
        "import asyncio, os, signal\n"
        "from holdfast import Holdfast\n"
        "from holdfast.cli import connect, main\n"
        "async def work(_):\n"
        "    for _ in range(2):\n"
        "        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)\n"
        "        try:\n"
        "            await asyncio.Event().wait()\n"
        "        except asyncio.CancelledError:\n"
        "            pass\n"
        "    await asyncio.Event().wait()\n"
        "main.run(lambda: connect.run(Holdfast('memory://'), work))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "")
