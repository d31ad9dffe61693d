"""Which process holds a claim: what proves that it is gone, and what proves nothing."""

import os
import subprocess
import sys

import pytest

from holdfast.client.process_identity import is_gone, own_process
from holdfast.core.clock import SystemClock
from holdfast.testing import ManualClock

CLOCK = SystemClock()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are identified by /proc")

SAYS_WHO_IT_IS = (
    "from holdfast.core.clock import SystemClock\n"
    "from holdfast.client.process_identity import own_process\n"
    "print(own_process(SystemClock()), flush=True)\n"
    "input()\n"
)


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", SAYS_WHO_IT_IS], stdin=-1, stdout=-1, text=True)
    process.identity = process.stdout.readline().strip()
    yield process
    process.communicate("\n")


def test_a_live_process_is_not_gone(child):
    assert not is_gone(os.getpid(), own_process(CLOCK), CLOCK)
    assert not is_gone(child.pid, child.identity, CLOCK)


def test_a_process_that_ended_is_gone_also_before_its_parent_has_asked(child):
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(child.pid, child.identity, CLOCK), "a zombie"
    child.wait()
    assert is_gone(child.pid, child.identity, CLOCK)


def test_another_process_that_has_got_its_pid_is_not_taken_for_it(child):
    place, _, start = own_process(CLOCK).rpartition("/")
    assert is_gone(os.getpid(), f"{place}/{int(start) - 1}", CLOCK)


@pytest.mark.parametrize("part", [0, 1, 2], ids=["boot", "pid namespace", "time namespace"])
def test_nothing_is_known_of_a_process_from_elsewhere(child, part):
    child.kill()
    child.wait()
    words = child.identity.split("/")
    words[part] = "another"
    assert not is_gone(child.pid, "/".join(words), CLOCK)


@pytest.mark.parametrize("identity", ["", "/", "nonsense", "a/b/c/"])
def test_an_identity_that_says_nothing_proves_nothing(child, identity):
    child.kill()
    child.wait()
    assert not is_gone(child.pid, identity, CLOCK)


@pytest.mark.parametrize("pid", [0, -1, 1 << 40])
def test_what_is_no_pid_proves_nothing(pid):
    assert not is_gone(pid, own_process(CLOCK), CLOCK)


def test_a_forked_child_is_another_process():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, own_process(CLOCK).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    identity = os.read(read, 1000).decode()
    os.close(read)
    os.close(write)
    assert identity
    assert is_gone(pid, identity, CLOCK)


def test_a_machine_whose_boot_is_not_known_identifies_nobody():
    clock = ManualClock()
    clock.boot_id = lambda: "unknown"
    assert own_process(clock) == ""
