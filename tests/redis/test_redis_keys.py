"""No key without an owner: after every kind of run all keys are walked, and each one is accounted for."""

from census import strays

from holdfast.job import Output, State
from holdfast.store.protocol import Batch
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
    """Some of everything: queues, keys, retries, suspects, output, checkpoints, changes, holders that come and go."""
    jobs = [
        new_job(queue=f"q{n % 3}", priority=n % 2, key=f"k{n}" if n % 4 == 0 else None, delay=0.0 if n % 5 else 60.0)
        for n in range(300)
    ]
    await insert(store, *jobs)
    ends = (succeeded, dead, released, failed)
    while records := await claim(store, "ann", "q0", "q1", "q2", limit=7):
        notes = [says(record, progress=b"1", checkpoint=b"2", output=Output(0, b"out", 10)) for record in records[::2]]
        settles = [ends[n % 2](record, keep=0.0 if n % 3 == 0 else 60.0) for n, record in enumerate(records[:-2])]
        settles += [failed(record, delay=60.0, suspect=True) for record in records[-2:-1]]
        settles += [snoozed(record, 60.0) for record in records[-1:]]
        answers = await store.write(Batch(notes=notes, settles=settles))
        assert all(answers.settles)
    found = (await store.find(_where(), None, 400)).records
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
    await store.beat([holder("bob"), holder("cyd")])
    await store.leave(["cyd"])
    await claim(store, "dan", "q0", limit=2)


def _where():
    from holdfast.job import Where

    return Where()


async def test_every_key_has_an_owner_in_the_midst_of_life(store, server):
    await live_a_little(store)
    assert await strays(store, server) == []


async def test_nothing_but_the_number_is_left_when_all_is_over(store, server, prefix):
    await live_a_little(store)
    while records := (await store.find(_where(), None, 100)).records:
        for record in records:
            assert await apply(store, deletion(await job(store, record.id)))
    await store.leave(["ann", "bob", "dan"])
    await store.put_record("pause", "q0", b"{}")
    await store.put_record("pause", "q0", None)
    assert await strays(store, server) == []
    left = {key.decode().partition("}:")[2] for key in server.keys(prefix)}
    # Keys are remembered for as long as was said, settlements of removed jobs for some minutes.
    assert left <= {"seq", "gone", "keys", "key-ends"}


async def test_jobs_that_are_not_kept_leave_nothing(store, server, prefix):
    for _ in range(3):
        await insert(store, *(new_job() for _ in range(100)))
        records = await claim(store, limit=100)
        await store.write(Batch(settles=[succeeded(record, keep=0.0) for record in records]))
    await store.leave(["ann"])
    assert {key.decode().partition("}:")[2] for key in server.keys(prefix)} == {"seq", "gone"}


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
