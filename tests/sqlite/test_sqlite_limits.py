"""Limit keys on one file: concurrency holds over many processes, and deferred jobs do not slow claims down."""

import asyncio
import sqlite3

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.job import LimitKey
from holdfast.store.sqlite import claim as claiming
from holdfast.store.sqlite import enqueue as enqueuing
from holdfast.store.sqlite import settle as settling
from holdfast.store.sqlite import sql
from holdfast.store.sqlite.step import Step
from holdfast.testing.build import ask, new_job, succeeded
from holdfast.testing.clock import ManualClock
from holdfast.testing.verbs import answer_to, claim, claim_one, enqueue, insert, job, settle

CROWD = 8
LIMIT_KEYS = 50
JOBS = 3000
AT_ONCE = 2
COUNT = """
CREATE TABLE counted (limit_key TEXT, running INTEGER);
CREATE TRIGGER counting AFTER UPDATE OF state ON holdfast_job WHEN new.state = 'running'
BEGIN
    INSERT INTO counted SELECT limit_key, count(*) FROM holdfast_job
        WHERE limit_key = new.limit_key AND state = 'running';
END;
"""
"""Every start of a job, in whatever process, is followed by a count of what runs of its limit key."""
WORK = """
import asyncio, sys
from pathlib import Path
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import ask, succeeded

async def main(path, name, crowd):
    store = SqliteStore(path, synchronous="normal")
    await store.open()
    listener, ends = store.listen(["queue/default"]), []
    while True:
        answers = await store.write(Batch(settles=ends, asks=[ask(name, limit=20)]))
        assert all(answers.settles), "a claim was lost"
        Path(path + "." + name).touch()
        while len(list(Path(path).parent.glob("jobs.db.p*"))) < int(crowd):
            await asyncio.sleep(0.01)  # until all have claimed
        ends = [succeeded(record) for record in answers.asks[0].records]
        if not ends:
            [queue] = await store.stats()
            if set(queue.counts) == {"succeeded"}:
                break
            await listener.wait(1.0)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_crowd_never_runs_more_of_a_limit_key_than_it_allows(path, store, python):
    jobs = [
        new_job(f"job-{n}", limit_key=LimitKey(f"limit_key-{n % LIMIT_KEYS}", concurrency=AT_ONCE)) for n in range(JOBS)
    ]
    await insert(store, *jobs)
    watcher = sqlite3.connect(path)
    watcher.executescript(COUNT)
    crowd = [python(WORK, path, f"p{number}", CROWD) for number in range(CROWD)]
    await asyncio.gather(*(asyncio.to_thread(each.communicate) for each in crowd))
    assert [each.returncode for each in crowd] == [0] * CROWD
    assert (await store.stats())[0].counts == {"succeeded": JOBS}
    assert watcher.execute("SELECT count(*), max(running) FROM counted").fetchone() == (JOBS, AT_ONCE)
    assert watcher.execute("SELECT count(*) FROM holdfast_limiter").fetchone() == (0,)
    watcher.close()


def effort(path):
    """The steps that SQLite's machine makes for a claim."""
    connection, steps = sqlite3.connect(path, isolation_level=None), [0]

    def count():
        steps[0] += 1

    connection.execute("BEGIN")
    connection.set_progress_handler(count, 1)
    assert len(claiming.claim(Step(connection, SystemClock()), ask(limit=5)).records) == 5
    connection.set_progress_handler(None, 1)
    connection.rollback()
    connection.close()
    return steps[0]


async def test_the_cost_of_a_claim_does_not_depend_on_the_number_of_deferred_jobs(path, store):
    async def fill(limit_keys, each):
        await insert(
            store,
            *(
                new_job(limit_key=LimitKey(f"{limit_keys}-{limit_key}", concurrency=1))
                for limit_key in range(limit_keys)
                for _ in range(each)
            ),
        )
        while (answer := await answer_to(store, ask(limit=10_000))).records or answer.due_in is not None:
            pass
        await insert(store, *(new_job() for _ in range(10)))

    await fill(2, 2)
    few = effort(path)
    await claim(store, limit=10)
    await fill(300, 10)
    assert effort(path) <= few * 1.1


async def test_an_end_in_one_store_notifies_listeners_of_another(store, open_store):
    limit_key = LimitKey("l", concurrency=1)
    other = await open_store()
    await insert(store, new_job("a", limit_key=limit_key), new_job("b", limit_key=limit_key))
    first = await claim_one(store)
    assert await claim(other, "bob") == []
    listener = other.listen(["queue/default"])
    await listener.wait(0.05)
    waiting = asyncio.ensure_future(listener.wait(3600))
    await asyncio.sleep(0)
    await settle(store, succeeded(first))
    async with asyncio.timeout(20):
        await waiting
    assert (await claim_one(other, "bob")).id == "b"


async def test_an_idle_store_with_a_full_limit_key_writes_nothing(path, open_store):
    store = await open_store(clock=ManualClock())
    await insert(store, *(new_job(limit_key=LimitKey("l", concurrency=1)) for _ in range(3)))
    await claim_one(store)
    assert await claim(store) == []
    watcher = sqlite3.connect(path)
    before = watcher.execute("PRAGMA data_version").fetchone()
    for _ in range(3):
        assert await claim(store, limit=10) == []
        await store.tidy(10)
    assert watcher.execute("PRAGMA data_version").fetchone() == before
    watcher.close()


@pytest.mark.parametrize("limit_key", [LimitKey("l", interval=1000), LimitKey("l", weight=1)])
async def test_a_limiter_is_removed_a_day_after_its_last_use(limit_key, path, open_store):
    clock = ManualClock()
    store = await open_store(clock=clock)
    await enqueue(store, limit_key=limit_key)
    await settle(store, succeeded(await claim_one(store)))
    watcher = sqlite3.connect(path)
    limiters = "SELECT count(*) FROM holdfast_limiter"
    clock.advance(86000)
    await store.tidy(10)
    assert watcher.execute(limiters).fetchone() == (1,)
    clock.advance(1000)
    await store.tidy(10)
    assert watcher.execute(limiters).fetchone() == (0,)
    watcher.close()


async def test_a_limit_key_whose_numbers_cannot_be_read_harms_one_job_only(path, store):
    await insert(store, new_job("broken", limit_key=LimitKey("l", concurrency=1)), new_job("sound"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE holdfast_job SET bounds = '?' WHERE id = 'broken'")
    connection.close()
    assert (await job(store, "broken")).limit_key == LimitKey("l")
    assert [record.id for record in await claim(store, limit=9)] == ["broken", "sound"]


async def test_a_hundred_limit_keys_cost_as_many_statements_as_one(path, store):
    def statements(limit_keys, kind):
        """The statements of a claim of a hundred jobs, and of their ends."""
        connection, made = sqlite3.connect(path, isolation_level=None), []
        connection.execute("BEGIN")
        enqueuing.insert_all(
            Step(connection, SystemClock()),
            [new_job(limit_key=LimitKey(f"{n % limit_keys}", **kind)) for n in range(100)],
        )
        connection.set_trace_callback(made.append)
        records = claiming.claim(Step(connection, SystemClock()), ask(limit=100)).records
        assert len(records) == 100
        assert all(settling.settle_all(Step(connection, SystemClock()), [succeeded(record) for record in records]))
        connection.set_trace_callback(None)
        connection.rollback()
        connection.close()
        return len(made)

    assert statements(100, {"concurrency": 100}) == statements(1, {"concurrency": 100})
    rate = {"interval": 1, "burst": 100}
    assert statements(100, rate) <= statements(1, rate) + 100 // sql.MANY


async def test_jobs_of_one_batch_get_the_positions_of_single_inserts(open_store, tmp_path):
    limit_keys = [
        LimitKey("a", weight=1),
        LimitKey("b", weight=3),
        LimitKey("c", weight=100),
        LimitKey("d", concurrency=1),
        None,
    ]
    jobs = [
        new_job(
            f"{n}",
            queue=f"q{n % 3 // 2}",
            limit_key=limit_keys[n * n % 7 % 5],
            priority=n % 2,
            delay=60.0 * (n % 11 == 5),
        )
        for n in range(90)
    ]
    turns = []
    for batches in ([jobs], [jobs[:40], jobs[40:]], [[new] for new in jobs]):
        store = await open_store(path=tmp_path / f"{len(batches)}.db", clock=ManualClock())
        for batch in batches:
            await insert(store, *batch)
        turns.append([(await job(store, new.id)).run_at for new in jobs])
    assert turns[0] == turns[1] == turns[2]
    assert len(set(turns[0])) > 20
