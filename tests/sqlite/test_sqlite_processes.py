"""Many processes on one file, processes that die in the middle of a write, and forks."""

import asyncio
import gc
import json
import os
import signal
import sqlite3
import traceback

from holdfast.core.job import State
from holdfast.core.operations import Where
from holdfast.testing.build import succeeded
from holdfast.testing.verbs import claim, enqueue, every, gone, job, settle

CROWD = 8
EACH = 300
HAMMER = """
import asyncio, json, sys
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import ask, new_job, succeeded

async def main(path, name, each):
    store = SqliteStore(path, synchronous="normal")
    await store.open()
    claimed, ends = [], []
    for number in range(each):
        batch = Batch(inserts=[new_job(f"{name}-{number}")], settles=ends, asks=[ask(name, limit=3)])
        answers = await store.write(batch)
        assert all(answers.settles), "a claim was lost"
        records = answers.asks[0].records
        claimed += [(record.id, record.fence) for record in records]
        ends = [succeeded(record) for record in records]
    await store.write(Batch(settles=ends))
    await store.close()
    print(json.dumps(claimed))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
ENQUEUE_FOR_EVER = """
import asyncio, itertools, sys
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import new_job

async def main(path, name):
    store = SqliteStore(path)
    await store.open()
    for number in itertools.count():
        jobs = [new_job(f"{name}-{number}-{part}", payload=b"x" * 3000) for part in range(10)]
        await store.write(Batch(inserts=jobs))
        print(number, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


async def test_a_crowd_on_one_file_loses_nothing_and_claims_nothing_twice(path, store, python):
    crowd = [python(HAMMER, path, f"p{number}", EACH) for number in range(CROWD)]
    answers = await asyncio.gather(*(asyncio.to_thread(each.communicate) for each in crowd))
    assert [each.returncode for each in crowd] == [0] * CROWD
    claimed = [tuple(pair) for out, _ in answers for pair in json.loads(out)]
    assert len(claimed) == len(set(claimed)) == CROWD * EACH
    counts = (await store.stats())[0].counts
    assert counts == {"succeeded": CROWD * EACH}


async def test_kill_9_in_the_middle_of_a_write_leaves_whole_commits(path, store, python):
    for turn in range(5):
        process = python(ENQUEUE_FOR_EVER, path, f"turn{turn}")
        acknowledged = -1
        for _ in range(10 + 7 * turn):
            acknowledged = int(await asyncio.to_thread(process.stdout.readline))
        process.send_signal(signal.SIGKILL)
        rest, _ = await asyncio.to_thread(process.communicate)
        acknowledged = max([acknowledged, *map(int, rest.split())])
        assert await claim(store, "ann", "empty") == []
        await enqueue(store, f"after-{turn}", queue="elsewhere")
        ids = {record.id for record in await every(store, Where(queue="default"), 500)}
        for number in range(acknowledged + 1):
            assert {f"turn{turn}-{number}-{part}" for part in range(10)} <= ids
        unacknowledged = [id for id in ids if id.startswith(f"turn{turn}-{acknowledged + 1}-")]
        assert len(unacknowledged) in (0, 10)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def use_anew(inherited, id):
    """What a forked child does: forget the parent's connections, and open the store for itself."""
    inherited.abandon()
    await inherited.open()
    await enqueue(inherited, id)
    [claimed] = await claim(inherited, "child")
    await settle(inherited, succeeded(claimed))
    await inherited.close()


async def let_go(inherited, _id):
    """What a forked child does that has no use for the store; its memory is tidied up nevertheless."""
    inherited.abandon()
    del inherited
    gc.collect()


def in_a_fork(use, store):
    """Run `use` in a forked child; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(use(store, "from-the-child"))
        except BaseException:  # noqa: BLE001  # a forked child must not fall back into pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


async def test_a_forked_child_forgets_and_begins_anew(path, store):
    await enqueue(store, "before", queue="parent")
    assert await asyncio.to_thread(in_a_fork, use_anew, store) == 0
    assert (await job(store, "from-the-child")).state == State.SUCCEEDED
    await enqueue(store, "after", queue="parent")
    assert (await job(store, "before")).state == State.QUEUED


async def test_a_child_that_lets_go_harms_nothing(path, store):
    await enqueue(store, "before")
    assert await asyncio.to_thread(in_a_fork, let_go, store) == 0
    await enqueue(store, "after")
    assert not await gone(store, "before")


async def test_a_fork_does_not_keep_the_lock_of_a_dead_parent(path, store, python):
    """A lock file that a child inherited open would stay locked when its parent dies with the lock."""
    process = python(
        """
import asyncio, fcntl, os, signal, sys
from holdfast.store.sqlite import SqliteStore

async def main(path):
    store = SqliteStore(path)
    await store.open()
    store._writer.lock.acquire()
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1]))
""",
        path,
    )
    orphan = int(await asyncio.to_thread(process.stdout.readline))
    try:
        async with asyncio.timeout(20):
            await enqueue(store, "still possible")
    finally:
        os.kill(orphan, signal.SIGKILL)


async def test_closing_waits_for_what_is_under_way_and_deletes_nothing(path, open_store):
    store = await open_store()
    sibling = store.sibling()
    await sibling.open()
    writing = [asyncio.ensure_future(enqueue(store, f"job-{number}")) for number in range(5)]
    await asyncio.sleep(0)
    await asyncio.gather(*writing)
    await store.close()
    await store.close()
    assert len(await every(sibling)) == 5
    await sibling.close()
    assert path.exists()
    assert path.with_name("jobs.db-lock").exists()
    await store.open()
    assert len(await every(store)) == 5
