"""No key without an owner: after every kind of run all keys are walked, and each one is accounted for."""

from key_census import strays

from holdfast.core.clock import MICROS
from holdfast.core.histogram import bucket
from holdfast.core.job import LimitKey, State
from holdfast.core.limiter import KEPT
from holdfast.core.operations import Output, Where
from holdfast.core.waiting import Waiting
from holdfast.store.protocol import Batch
from holdfast.store.redis.names import LETTERS
from holdfast.testing.build import (
    cancellation,
    change,
    dead,
    deletion,
    failed,
    holder,
    new_job,
    released,
    retrial,
    says,
    snoozed,
    succeeded,
)
from holdfast.testing.verbs import apply, claim, insert, job, settle


async def live_a_little(store) -> None:
    """Some of everything: queues, keys, retries, quarantined jobs, output, checkpoints, changes, holders."""
    jobs = [
        new_job(queue=f"q{n % 3}", priority=n % 2, key=f"k{n}" if n % 4 == 0 else None, delay=0.0 if n % 5 else 60.0)
        for n in range(300)
    ]
    await insert(store, *jobs)
    ends = (succeeded, dead, released, failed)
    while records := await claim(store, "ann", "q0", "q1", "q2", limit=7):
        notes = [says(record, progress=b"1", checkpoint=b"2", output=Output(0, b"out", 10)) for record in records[::2]]
        notes += [says(record, output=Output(0, b"1\n", 10, stream=True)) for record in records[::3]]
        settles = [ends[n % 2](record, keep=0.0 if n % 3 == 0 else 60.0) for n, record in enumerate(records[:-2])]
        settles += [failed(record, delay=60.0, quarantined=True) for record in records[-2:-1]]
        settles += [snoozed(record, 60.0) for record in records[-1:]]
        answers = await store.write(Batch(notes=notes, settles=settles))
        assert all(answers.settles)
    found = (await store.find(Where(), None, 400)).records
    waiting = [record for record in found if record.state in (State.SCHEDULED, State.FAILED)]
    over = [record for record in found if record.state == State.DEAD]
    assert len(waiting) > 20
    assert len(over) > 5
    for record in waiting[:5]:
        assert await apply(store, cancellation(record, keep=0.0))
    for record in waiting[5:10]:
        assert await apply(store, deletion(record))
    for record in waiting[10:15]:
        assert await apply(store, change(record, state=State.QUEUED, delay=0.0))
    for record in over[:5]:
        assert await apply(store, retrial(record))
    await wait_a_little(store)
    await store.heartbeat([holder("bob"), holder("cyd")])
    await store.leave(["cyd"])
    await claim(store, "dan", "q0", limit=2)


async def wait_a_little(store) -> None:
    """Some of everything that jobs wait for: others, a signal with an end in time, limit keys of all kinds."""
    limit_keys = (
        LimitKey("full", concurrency=1),
        LimitKey("slow", interval=60 * MICROS),
        LimitKey("fair", weight=2),
        LimitKey("both", concurrency=2, interval=MICROS, burst=3),
    )
    waiting_for = [
        new_job(
            queue="q0", waiting_for=Waiting("dependency", f"{n % 2}"), limit_key=limit_keys[n % 4] if n % 3 else None
        )
        for n in range(12)
    ]
    await insert(
        store, *waiting_for, *(new_job(queue="limit_keys", limit_key=limit_keys[n % 4], delay=60.0) for n in range(4))
    )
    await insert(store, *(new_job(queue="limit_keys", limit_key=limit_keys[n % 4], extra=b"{}") for n in range(40)))
    records = await claim(store, "ann", "limit_keys", limit=40)
    assert {record.limit_key.name for record in records} == {"full", "slow", "fair", "both"}
    ends = (succeeded, dead, released, failed)
    settles = [ends[n % 4](record, record_end=n % 2 == 0) for n, record in enumerate(records[:-5])]
    settles += [snoozed(record, 60.0, waiting_for=Waiting("signal", "x")) for record in records[-5:-2]]
    notes = [says(records[-1], rest=60.0)]
    assert all((await store.write(Batch(notes=notes, settles=settles))).settles)
    await claim(store, "ann", "limit_keys", limit=3)
    for record in (await store.find(Where(waiting_for=Waiting("limit", "slow")), None, 4)).records:
        assert await apply(store, change(record, meta={"seen": 1}))
    for record in (await store.find(Where(waiting_for=Waiting("limit", "full")), None, 2)).records:
        assert await apply(store, change(record, waiting_for=Waiting("dependency", "2")))
    for record in (await store.find(Where(waiting_for=Waiting("dependency", "1")), None, 2)).records:
        assert await apply(store, change(record, state=State.QUEUED))
    for record in (await store.find(Where(waiting_for=Waiting("signal", "x")), None, 1)).records:
        assert await apply(store, deletion(record))


def left(server, prefix) -> set[str]:
    """The kinds of the keys that there are."""
    return {key.decode().partition("}:")[2].partition(":")[0] for key in server.keys(prefix)}


async def test_every_key_has_an_owner_during_work(store, server):
    await live_a_little(store)
    assert await strays(store, server) == []


async def test_nothing_but_the_numbers_is_left_when_all_is_over(store, server, prefix):
    await live_a_little(store)
    while records := (await store.find(Where(), None, 100)).records:
        for record in records:
            assert await apply(store, deletion(await job(store, record.id)))
    await store.leave(["ann", "bob", "dan"])
    await store.put_record("pause", "q0", b"{}")
    await store.put_record("pause", "q0", None)
    assert await strays(store, server) == []
    # Keys are remembered for as long as was said, settlements of removed jobs for some minutes, minutes for a week,
    # what limit keys have used for a day, and ends that other jobs wait for, until they are handled.
    kept = {"seq", "server", "gone", "keys", "key-ends", "hours", "minutes", "records", "record-version"}
    assert left(server, prefix) <= kept | {"limit_key-opens", "limit_key-tat", "limit_key-rest", "limit_key-position"}


async def test_jobs_that_are_not_kept_leave_nothing(store, server, prefix):
    for _ in range(3):
        await insert(store, *(new_job() for _ in range(100)))
        records = await claim(store, limit=100)
        await store.write(Batch(settles=[succeeded(record, keep=0.0) for record in records]))
    await store.leave(["ann"])
    assert left(server, prefix) == {"seq", "server", "gone", "hours", "minutes"}


async def test_a_settlement_of_a_removed_job_is_still_known_when_it_comes_again(store):
    await insert(store, new_job("a"))
    [record] = await claim(store)
    end = succeeded(record, keep=0.0)
    assert await settle(store, end)
    assert await settle(store, end)
    assert not await settle(store, succeeded(record, keep=0.0))


async def test_stores_with_different_prefixes_do_not_see_each_other(open_at, server, prefix, store):
    other = await open_at(server.url(prefix + "-other", durability="none"))
    await insert(store, new_job("a"))
    assert await claim(other) == []
    assert await other.stats() == []
    assert await strays(other, server) == []


async def test_transitions_are_kept_only_while_they_are_read(store, server, prefix):
    await live_a_little(store)
    assert not {"watch", "transitions"} & left(server, prefix)
    cursor = (await store.transitions(None, 10)).cursor
    await insert(store, new_job("seen"), new_job("due later", delay=60.0))
    assert [(move.id, move.state) for move in (await store.transitions(cursor, 10)).transitions] == [
        ("seen", State.QUEUED),
        ("due later", State.SCHEDULED),
    ]
    assert await strays(store, server) == []
    server.call("HSET", f"{{{prefix}}}:watch", "until", 1)  # as if there was no reader for long
    await insert(store, new_job("unseen"))
    assert server.call("XLEN", f"{{{prefix}}}:transitions") == 1
    await store.tidy(10)
    assert not {"watch", "transitions"} & left(server, prefix)


async def test_a_reader_of_an_earlier_watch_gets_missed(store, server, prefix):
    """Two watches share no numbers, even if all keys of the first one are deleted."""
    cursor = (await store.transitions(None, 10)).cursor
    await insert(store, new_job("a"))
    server.call("DEL", f"{{{prefix}}}:watch", f"{{{prefix}}}:transitions")
    other = (await store.transitions(None, 10)).cursor
    await insert(store, *(new_job() for _ in range(50)))
    assert (await store.transitions(cursor, 10)).missed
    assert len((await store.transitions(other, 10)).transitions) == 50  # to the end of the commit


async def test_the_feed_does_not_grow_beyond_what_it_keeps(store, server, prefix):
    cursor = (await store.transitions(None, 10)).cursor
    for _ in range(60):
        await insert(store, *(new_job() for _ in range(1000)))
    kept = server.call("XLEN", f"{{{prefix}}}:transitions")
    assert 10 <= kept < 60, "some of sixty steps of a thousand moves"
    assert (await store.transitions(cursor, 10)).missed


async def test_minutes_older_than_a_week_are_removed_with_their_keys(store, server, prefix):
    head = f"{{{prefix}}}:"
    old = await store.now() // 3_600_000_000 - 8 * 24
    server.call("HSET", f"{head}minutes:{old}", "5:succeeded:3:q:1work", b"\x95\x03\x1e\x09\x91\x03\x91\x03")
    server.call("ZADD", f"{head}hours", old, old)
    await insert(store, new_job(queue="q:1"))
    [record] = await claim(store, "ann", "q:1")
    assert await settle(store, succeeded(record))
    assert [(minute.queue, minute.count) for minute in await store.stats_by_minute(0)] == [("q:1", 1)]
    await store.tidy(10)
    assert server.call("EXISTS", f"{head}minutes:{old}") == 0
    assert await strays(store, server) == []


async def test_unused_limit_keys_are_removed_after_a_day(store, server, prefix):
    head = f"{{{prefix}}}:"
    await insert(
        store, *(new_job(limit_key=LimitKey("held", concurrency=1, interval=MICROS, weight=1)) for _ in range(3))
    )
    [record] = await claim(store)
    assert await claim(store) == []
    assert await store.write(Batch(notes=[says(record, rest=60.0)]))
    old = await store.now() - KEPT - MICROS
    for key in ("limit_key-opens", "limit_key-tat", "limit_key-rest", "limit_key-position"):
        server.call("ZADD", head + key, old, "gone")
    server.call("ZADD", head + "limit_key-opens", old, "held")
    await store.tidy(10)
    for key in ("limit_key-opens", "limit_key-tat", "limit_key-rest", "limit_key-position"):
        assert server.call("ZRANGE", head + key, 0, -1) == [b"held"]


async def test_durations_are_counted_in_the_buckets_of_the_core(store, server, prefix):
    """The due time of a running job is changed, so that it has waited for a known time."""
    due = b"\xa1" + LETTERS["due"].encode() + b"\xcf"
    waits = (0, 999, 1000, 1999, 2000, 2**30 * 1000 - 1, 2**30 * 1000)
    await insert(store, *[new_job() for _ in waits])
    records = await claim(store, "ann", limit=len(waits))
    chunk = f"{{{prefix}}}:jobs:{records[0].seq // 256}"
    for waited, record in zip(waits, records, strict=True):
        mutable = server.call("HGET", chunk, f"{record.seq}~")
        at = mutable.index(due) + len(due)
        number = (record.started_at - waited).to_bytes(8, "big")
        server.call("HSET", chunk, f"{record.seq}~", mutable[:at] + number + mutable[at + 8 :])
    await store.write(Batch(settles=[succeeded(record) for record in records]))
    [minute] = await store.stats_by_minute(0)
    assert minute.waits == tuple([bucket(waited) for waited in waits].count(place) for place in range(32))
