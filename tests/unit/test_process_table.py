"""Which processes live, and whose they are."""

import os
import signal
import subprocess
import sys

import pytest

from holdfast import Holdfast
from holdfast.client.claims import new_holder
from holdfast.worker.processes import process_table
from support.eventually import eventually
from support.inside import session_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def sleeper():
    started = []

    def start(mark=None):
        env = {**os.environ} if mark is None else {**os.environ, process_table.MARKER: mark}
        process = subprocess.Popen(["sleep", "60"], env=env)  # returns once it is what it shall be
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_a_process_is_known_by_its_start(sleeper):
    process = sleeper()
    start = process_table.start_of(process.pid)
    assert process_table.is_alive(process.pid, start)
    assert not process_table.is_alive(process.pid, "1")
    assert not process_table.signal_process(process.pid, "1", signal.SIGKILL)
    assert process.poll() is None
    assert process_table.signal_process(process.pid, start, signal.SIGKILL)
    await eventually(lambda: process_table.start_of(process.pid) is None)  # a zombie does not live
    process.wait()
    assert not process_table.signal_process(process.pid, start, signal.SIGKILL)


@linux
def test_the_sweep_kills_what_dead_workers_left_and_nothing_else(sleeper):
    mine = process_table.marker("job", 1)
    namespace = mine.split(":")[2]
    left = sleeper(f"{os.getpid()}:1:{namespace}:job:1")
    guarded = sleeper(mine)
    elsewhere = sleeper(f"{os.getpid()}:1:another-container:job:1")
    plain = sleeper()
    process_table.sweep()
    assert left.wait(90) == -signal.SIGKILL
    assert [one.poll() for one in (guarded, elsewhere, plain)] == [None, None, None]
    assert process_table.kill_marked(mine) == 1
    assert guarded.wait(90) == -signal.SIGKILL


async def test_two_hosts_with_one_name_and_one_pid_do_not_collide(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "twin")
    monkeypatch.setattr(os, "getpid", lambda: 7)
    holders = []
    for _ in range(2):
        async with Holdfast("memory://") as app:
            holders.append(new_holder(session_of(app), "worker", 30.0, ("default",)))
    assert {(holder.node, holder.pid) for holder in holders} == {("twin", 7)}
    assert holders[0].id != holders[1].id
