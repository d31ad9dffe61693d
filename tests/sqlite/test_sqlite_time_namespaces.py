"""Processes of one machine in different time namespaces: the time since boot differs, the boot's id does not."""

import os
import subprocess
import sys

from holdfast.core.clock import SystemClock
from holdfast.testing.verbs import job, running
from holdfast.worker.processes.process_table import is_alive, own_start
from support.eventually import eventually
from support.time_namespace import inside

LOOK = """
import asyncio, sys
from holdfast.store.sqlite import SqliteStore

async def main(path):
    store = SqliteStore(path)
    await store.open()
    print(*[lost.record.id for lost in await store.expired(10)])
    print(*[seen.alive for seen in await store.holders()])
    await store.close()

asyncio.run(main(sys.argv[1]))
"""
CLAIM = """
import asyncio, sys
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import holder
from holdfast.testing.verbs import running

async def main(path):
    store = SqliteStore(path)
    await store.open()
    await running(store, "short", holder("bob", lease=0.05), queue="short")
    await running(store, "long", holder("eve", lease=3600), queue="long")

asyncio.run(main(sys.argv[1]))
"""
WATCH = """
import os, sys
from holdfast.core.clock import SystemClock
from holdfast.worker.processes.process_table import is_alive, own_start

print(SystemClock().boot(), is_alive(int(sys.argv[1]), sys.argv[2]), os.getpid(), own_start(), flush=True)
sys.stdin.read()
"""
UNSHARE_AGAIN = """
import asyncio, sys
from support.time_namespace import unshare
from holdfast import ConfigError
from holdfast.store.sqlite import SqliteStore

async def main(path):
    unshare()
    store = SqliteStore(path)
    try:
        await store.open()
    except ConfigError as error:
        print(error)

asyncio.run(main(sys.argv[1]))
"""


def run(program, *arguments):
    command = inside(sys.executable, "-c", program, *map(str, arguments))
    paths = os.environ | {"PYTHONPATH": "src:tests"}
    return subprocess.run(command, env=paths, capture_output=True, text=True, check=True).stdout.splitlines()


async def test_a_process_in_another_time_namespace_expires_no_valid_lease(path, store):
    await running(store, "claimed")
    assert run(LOOK, path) == ["", "True"]


async def test_a_lease_given_in_another_time_namespace_ends_when_it_should(path, store):
    run(CLAIM, path)
    lost = await eventually(lambda: store.expired(10))
    assert [each.record.id for each in lost] == ["short"]
    assert [(seen.holder.id, seen.alive) for seen in await store.holders()] == [("bob", False), ("eve", True)]
    assert (await job(store, "long")).state == "running"


def test_the_time_since_boot_and_a_process_are_the_same_in_every_time_namespace():
    before = SystemClock().boot()
    command = inside(sys.executable, "-c", WATCH, str(os.getpid()), own_start())
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watching:
        boot, sees_this_process, pid, start = watching.stdout.readline().split()
        seen_here = is_alive(int(pid), start)
    assert before < int(boot) < SystemClock().boot()
    assert sees_this_process == "True"
    assert seen_here


def test_a_process_that_cannot_know_its_offset_is_refused(path):
    [said] = run(UNSHARE_AGAIN, path)
    assert "time namespace" in said
    assert "child process" in said
