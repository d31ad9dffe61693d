"""What a bucket is asked for: few writes, none while idle, all of it counted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from alone import opened, virtually
from delayed import Delayed, InMemory

from holdfast import Holdfast
from holdfast.core.clock import Entropy, SystemClock
from holdfast.core.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.log_format import VERSION
from holdfast.store.bucket.timings import Timings
from holdfast.store.bucket.writer import Writer
from holdfast.store.group_commit import GroupCommit
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, new_job, succeeded
from holdfast.testing.verbs import enqueue, every, insert, running, settle


@pytest.fixture
def bucket():
    return Delayed(InMemory(SystemClock()), 0.0)


@pytest.fixture
async def store(bucket):
    store = BucketStore(bucket)
    await store.open()
    yield store
    await store.close()


def test_a_hundred_enqueues_and_one_bad_settle_share_a_few_writes():
    """With 100 ms on every request: at most four writes, one error, and it is over in a second."""

    async def story(clock):
        bucket = Delayed(InMemory(clock), 0.1)
        async with opened(bucket, clock) as store:
            stale = await running(store)
            assert await settle(store, succeeded(stale))
            bucket.requests.clear()
            commit = GroupCommit(store, Entropy(1))
            async with asyncio.timeout(1.0):
                answers = await asyncio.gather(
                    *(commit.insert([new_job(f"job-{n}")]) for n in range(100)),
                    commit.settle(succeeded(stale)),
                )
            return answers, bucket.requests["put"]

    answers, puts = virtually(story)
    assert answers.pop() is False, "one error: that claim has ended"
    assert [answer[0].outcome for answer in answers] == ["created"] * 100
    assert puts <= 4


async def test_idle_polls_write_nothing(store, bucket):
    bucket.requests.clear()
    for _ in range(10):
        answers = await store.write(Batch(asks=[ask("ann")]))
        assert answers.asks[0].records == []
        await store.expired(10)
        await store.tidy(10)
    assert bucket.requests["put"] == 0


async def test_a_lone_writer_pays_one_put_a_commit(store, bucket):
    await enqueue(store)
    bucket.requests.clear()
    for _ in range(10):
        await enqueue(store)
    assert bucket.requests["put"] == 10


async def test_requests_of_all_processes_are_counted(store, bucket):
    other = BucketStore(bucket)
    await other.open()
    for _ in range(20):
        await store.write(Batch(inserts=[new_job()]))
        await other.write(Batch(inserts=[new_job()]))
    cost = await store.cost()
    made = bucket.requests["get"] + bucket.requests["put"] + bucket.requests["list"]
    await other.close()
    assert cost.jobs == 40
    # The requests of each process since its last commit are counted with its next one.
    assert 0.7 * made <= cost.requests_per_job * 40 <= made
    assert cost.dollars_per_million > 5.0


@pytest.mark.parametrize(("writers", "most"), [(1, 1.2), (2, 5.0), (4, 7.0), (16, 19.0)])
def test_alternating_writers_need_few_requests(writers, most):
    """Each reads the entries of all others, and loses at most one put per entry; none needs the inbox."""

    async def story(clock):
        bucket = InMemory(clock)
        doors = [Delayed(bucket, 0.05) for _ in range(writers)]
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(door, clock, Timings())) for door in doors]
            for door in doors:
                door.requests.clear()
            for n in range(40):
                for who, store in enumerate(stores):
                    await insert(store, new_job(f"job-{n}-{who}"))
            assert not any(key.startswith("inbox/") for key in bucket.objects)
            return sum(door.requests.total() for door in doors) / (40 * writers)

    assert virtually(story) <= most


async def test_an_object_with_four_methods_is_a_store():
    bucket = InMemory(SystemClock())
    app = Holdfast(BucketStore(bucket))

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with app:
        handle = await add.enqueue(1, 2)
        [claim] = await app.claim("default")
        await claim.complete(3)
        assert await handle.result(timeout=30) == 3
    assert any(key.startswith("log/") for key in bucket.objects)


class Pretender(InMemory):
    """Answers a conditional put without checking the condition."""

    async def put_if_absent(self, key, data):
        await asyncio.sleep(0)
        self.objects[key] = (data, self._clock.now())
        return True


async def test_a_bucket_that_only_pretends_is_refused():
    store = BucketStore(Pretender(SystemClock()))
    with pytest.raises(ConfigError, match="conditional writes"):
        await store.open()
    findings = await store.examine()
    assert not findings[0].fine
    assert "created the same object" in findings[0].what


async def test_a_bucket_that_is_well_passes_examination(store):
    await enqueue(store)
    findings = await store.examine()
    assert all(finding.fine for finding in findings), findings


async def test_a_torn_or_empty_entry_is_an_error_and_not_an_empty_queue(bucket):
    store = BucketStore(bucket)
    await store.open()
    await enqueue(store, "a")
    await store.close()
    objects = bucket._bucket.objects
    key = max(key for key in objects if key.startswith("log/"))
    for torn in (b"", objects[key][0][:-5], b"[]", b"null"):
        whole = objects[key]
        objects[key] = (torn, whole[1])
        again = BucketStore(bucket)
        with pytest.raises(StoreUnavailable, match=f"{key} of the bucket is damaged.*: restore it from a backup"):
            await again.open()
        findings = await again.examine()
        assert not all(finding.fine for finding in findings)
        objects[key] = whole


async def test_an_entry_of_a_newer_version_is_refused_by_name(bucket):
    store = BucketStore(bucket)
    await store.open()
    await enqueue(store, "a")
    await store.close()
    objects = bucket._bucket.objects
    key = max(key for key in objects if key.startswith("log/"))
    objects[key] = (objects[key][0].replace(b'"v":%d' % VERSION, b'"v":%d' % (VERSION + 1), 1), objects[key][1])
    with pytest.raises(Exception, match="newer Holdfast"):
        await BucketStore(bucket).open()


async def test_an_unexpected_error_after_a_write_does_not_promise_that_nothing_was_written(store, monkeypatch):
    write = Writer.write

    async def write_and_fail(writer, batched):
        await write(writer, batched)
        raise KeyError("a defect")

    monkeypatch.setattr(Writer, "write", write_and_fail)
    with pytest.raises(OutcomeUnknown, match=r"KeyError: 'a defect'; the write may have happened"):
        await insert(store, new_job("written"))
    monkeypatch.undo()
    assert [record.id for record in await every(store)] == ["written"]


def test_a_put_of_a_suspended_process_is_no_measure_of_later_waits():
    """Puts that took 8 s, as their process was suspended: races with another process do not wait for such times."""

    async def story(clock):
        bucket = Delayed(InMemory(clock), 0.05)
        async with opened(bucket, clock) as slow, opened(bucket, clock) as other:
            bucket.seconds = 8.0
            for number in range(5):
                await enqueue(slow, f"late-{number}")
            bucket.seconds = 0.05
            loop, waits = asyncio.get_running_loop(), []
            for number in range(20):
                began = loop.time()
                await asyncio.gather(enqueue(slow, f"slow-{number}"), enqueue(other, f"other-{number}"))
                waits.append(loop.time() - began)
            return max(waits)

    assert virtually(story) < 5.0
