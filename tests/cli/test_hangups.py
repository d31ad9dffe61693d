"""SIGHUP: workers in the background reopen their log, workers in the foreground stop gracefully."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from holdfast.worker import background
from holdfast.worker.service import Service
from support.http import served
from support.terminal import HOLDFAST, kill


def log_of(terminal):
    [log] = terminal.folder.glob("state/holdfast/*.log")
    return log


def moved(log):
    """Rotate a log as logrotate does."""
    return log.rename(log.with_suffix(".1"))


def workers_in(log):
    """The workers that logged a job in this file."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {line["worker_id"] for line in lines if "worker_id" in line}


def test_a_supervisor_is_started_with_hangups_ignored(monkeypatch, tmp_path):
    """Until it handles them: ignored signals are inherited by child processes."""
    ignored: list[bool] = []

    def popen(*_: object, **__: object) -> None:
        ignored.append(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
        raise OSError("not now")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("holdfast.worker.background.subprocess.Popen", popen)
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(OSError, match="not now"):
        background.start(Service(count=1), "key", "memory://")
    assert ignored == [True]
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_supervisor_and_its_workers_reopen_their_log(terminal):
    terminal("worker", "start", "--count", "2", "--concurrency", "1")
    [supervisor], log = terminal.supervisors(), log_of(terminal)
    old = moved(log)
    os.kill(supervisor, signal.SIGHUP)
    terminal.until(log.exists)

    def both_log_there():
        terminal.store.submit("shell", b'{"command": "true"}', json=True)
        return len(workers_in(log)) == 2

    terminal.until(both_log_there)
    output = old.read_text()
    [one, _] = [worker["pid"] for worker in terminal.workers()]
    kill(one)
    terminal.until(lambda: f"worker process {one} crashed" in log.read_text())
    terminal.until(lambda: len(terminal.workers()) == 2)
    terminal("worker", "stop")
    assert old.read_text() == output
    assert log.stat().st_mode & 0o777 == 0o600


SLOW_START = """
import pathlib, sys, time
from holdfast import Holdfast
app = Holdfast()

@app.task
def hello() -> None:
    pass

if sys.argv[0].endswith('member.py'):
    pathlib.Path('starting').touch()
    while not pathlib.Path('go').exists():
        time.sleep(0.01)
"""


def test_a_starting_worker_reopens_a_rotated_log(terminal):
    (terminal.folder / "shop.py").write_text(SLOW_START)
    start = terminal.start("worker", "start", "-A", "shop:app")
    terminal.until((terminal.folder / "starting").exists)
    [supervisor], log = terminal.supervisors(), log_of(terminal)
    moved(log)
    os.kill(supervisor, signal.SIGHUP)
    terminal.until(log.exists)
    (terminal.folder / "go").touch()
    assert start.wait(90) == 0, terminal.log()
    terminal("enqueue", "--id", "x", "--task", "hello")
    terminal.until(lambda: "job_succeeded" in log.read_text())
    terminal("worker", "stop")


def test_a_log_that_cannot_be_reopened_is_kept(terminal):
    terminal("worker", "start")
    [supervisor], log = terminal.supervisors(), log_of(terminal)
    old = moved(log)
    log.mkdir()
    os.kill(supervisor, signal.SIGHUP)
    terminal.until(lambda: old.read_text().count("cannot be reopened") == 2)
    log.rmdir()
    terminal("enqueue", '{"id": "x", "command": "echo hi"}')
    terminal.until(lambda: terminal.job("x")["state"] == "succeeded")
    terminal("worker", "stop")


CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Runs Python with its standard input as controlling terminal, as a shell does."""


def test_closing_the_terminal_stops_gracefully(terminal):
    terminal("enqueue", '{"id": "x", "command": "echo begun; sleep 1.5; echo done"}')
    ours, theirs = pty.openpty()
    front = subprocess.Popen(
        [
            sys.executable,
            "-c",
            CONTROLLED,
            *HOLDFAST[1:],
            "worker",
            "start",
            "--foreground",
            "--count",
            "2",
            "--grace",
            "60",
        ],
        cwd=terminal.folder,
        env=terminal.env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    terminal.started.append(front)
    terminal.until(lambda: terminal.printed("x") == "begun\n")
    os.close(ours)
    assert front.wait(90) == 0
    job = terminal.job("x")
    assert (job["state"], job["attempt"], len(job["history"])) == ("succeeded", 1, 1), terminal.log()
    assert terminal.process_table() == {}


def test_more_hangups_do_not_shorten_a_graceful_stop(terminal):
    terminal("enqueue", '{"id": "x", "command": "echo begun; while [ ! -e go ]; do sleep 0.1; done"}')
    front = terminal.start("worker", "start", "--foreground", "--grace", "60")  # of a busy machine
    terminal.until(lambda: terminal.printed("x") == "begun\n")
    [worker] = terminal.workers()
    os.kill(front.pid, signal.SIGHUP)
    for pid in (front.pid, worker["pid"], front.pid):
        os.kill(pid, signal.SIGHUP)
    (terminal.folder / "go").touch()
    assert front.wait(90) == 0
    job = terminal.job("x")
    assert (job["state"], job["attempt"], len(job["history"])) == ("succeeded", 1, 1), terminal.log()


def test_nohup_is_respected(terminal):
    front = subprocess.Popen(
        ["nohup", *HOLDFAST, "worker", "start", "--foreground"],
        cwd=terminal.folder,
        env=terminal.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    terminal.started.append(front)
    terminal.until(terminal.workers)
    os.kill(front.pid, signal.SIGHUP)
    terminal("enqueue", '{"id": "x", "command": "true"}')
    terminal.until(lambda: terminal.job("x")["state"] == "succeeded")
    front.terminate()
    assert front.wait(90) == 0


def test_a_server_stops_gracefully(terminal):
    with served(terminal.folder, f"sqlite:///{terminal.folder}/holdfast.db") as server:
        server.address()
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(90) == 0, server.output()
