"""The first workers of a supervisor are forked from it; those that replace them are new programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support.terminal import kill

FORK = """
import json, os
from holdfast.worker.prefork import fork_workers
from holdfast.worker.service import Service

ours = os.pipe()
made = fork_workers(Service(count=3, engine="sqlite"))
for process, connection, _ in made:
    while len(os.listdir(f"/proc/{process.pid}/fd")) != 4:
        assert process.poll() is None
stopped = made[0][0]
stopped.kill()
while stopped.poll() is None:
    pass
for _, connection, _ in made:
    connection.close()
while any(process.poll() is None for process, *_ in made):
    pass
print(json.dumps([process.returncode for process, *_ in made]))
"""


def test_a_forked_worker_has_one_connection_and_exits_if_it_is_not_started():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [-9, 0, 0]
    assert done.stderr == ""


def test_a_killed_worker_is_replaced_by_a_new_program(terminal):
    def programs():
        table = terminal.process_table()
        return [table[one["pid"]].split()[2] for one in terminal.workers() if one["pid"] in table]

    terminal("worker", "start", "--count", "2")
    assert programs() == ["holdfast.worker.background"] * 2
    kill(terminal.workers()[0]["pid"])
    terminal.until(lambda: sorted(programs()) == ["holdfast.worker.background", "holdfast.worker.member"])
    terminal("worker", "stop")


def test_a_worker_in_the_foreground_is_forked_from_a_process_that_opened_nothing(terminal):
    process = terminal.start("worker", "start", "--foreground")
    [worker] = terminal.until(terminal.workers)
    assert Path(f"/proc/{worker['pid']}/cmdline").read_text().split("\0")[2] == "holdfast.cli.foreground"
    assert os.getpgid(worker["pid"]) == worker["pid"], "Ctrl-C reaches only the supervisor"
    process.terminate()
    assert process.wait(60) == 0
