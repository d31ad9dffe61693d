"""Group commit cuts its writes by bytes: large payloads, results, notes and batches that wait share no write."""

import asyncio

import pytest

from holdfast.core.clock import Entropy
from holdfast.core.job import Record
from holdfast.core.operations import Note
from holdfast.store.group_commit import BATCH_BYTES, PAGE, GroupCommit, pages
from holdfast.store.protocol import Answers, Batch
from holdfast.store.sizes import OPERATION_BYTES, batch_bytes
from holdfast.testing.build import change, new_job, succeeded
from support.eventually import eventually

MIB = 1024**2


class Recording:
    """Has nothing but `write`: the first one waits until the test opens it, all are recorded and say yes."""

    def __init__(self):
        self.writes = []
        self.open = asyncio.Event()

    async def write(self, batch):
        self.writes.append(batch)
        await self.open.wait()
        await asyncio.sleep(0)
        kinds = {kind: [True for _ in getattr(batch, kind)] for kind in ("inserts", "notes", "settles", "changes")}
        return Answers(**kinds, asks=[])


@pytest.fixture
async def store():
    return Recording()


@pytest.fixture
async def commit(store):
    """A group commit with a write in flight: everything that follows waits."""
    commit = GroupCommit(store, Entropy(1))
    asyncio.ensure_future(commit.insert([new_job()]))  # noqa: RUF006  # answered with the rest
    await eventually(lambda: store.writes)
    return commit


def claim(number):
    return Record(number, f"job-{number}", "default", "work", "running", 0, 0, b"", "json", 5, None, None, 0, fence=1)


def note(number, size):
    return Note(f"job-{number}", number, 1, 0, progress=bytes(size))


async def finished(store, *operations):
    """Let all writes pass; returns those after the first."""
    waiting = asyncio.gather(*operations)
    await asyncio.sleep(0)
    store.open.set()
    assert all(answer for answer in await waiting)
    return store.writes[1:]


async def test_a_large_insert_is_not_held_back_by_settlements(store, commit):
    large = commit.insert([new_job("large", payload=bytes(BATCH_BYTES - 1000))])
    settled = [commit.settle(succeeded(claim(number))) for number in range(3)]
    [write] = await finished(store, large, *settled)
    assert (len(write.inserts), len(write.settles)) == (1, 3)


@pytest.mark.parametrize("kind", ["inserts", "settles", "notes", "changes", "batches"])
async def test_operations_that_wait_share_writes_of_bounded_bytes(store, commit, kind):
    large = bytes(MIB)
    operation = {
        "inserts": lambda n: commit.insert([new_job(f"job-{n}", payload=large)]),
        "settles": lambda n: commit.settle(succeeded(claim(n), result=large)),
        "notes": lambda n: commit.note(note(n, MIB)),
        "changes": lambda n: commit.change([change(claim(n), payload=large)]),
        "batches": lambda n: commit.write(Batch(settles=[succeeded(claim(n), result=large)])),
    }[kind]
    writes = await finished(store, *(operation(n) for n in range(30)))
    assert all(batch_bytes(batch) <= BATCH_BYTES for batch in writes)
    assert len(writes) == 5, "seven of them fit one write"
    part = "settles" if kind == "batches" else kind
    ids = [each.id for batch in writes for each in getattr(batch, part)]
    assert ids == [f"job-{n}" for n in range(30)]


@pytest.mark.parametrize("kind", ["inserts", "settles", "notes", "changes"])
async def test_batches_that_wait_share_writes_of_a_bounded_number_of_operations(store, commit, kind):
    operation = {"inserts": new_job(), "settles": succeeded(claim(1)), "notes": note(1, 1), "changes": change(claim(1))}
    half = Batch(**{kind: [operation[kind]] * (PAGE // 2)})
    writes = await finished(store, *(commit.write(half) for _ in range(6)))
    assert [len(getattr(batch, kind)) for batch in writes] == [PAGE] * 3


async def test_small_operations_behind_a_large_one_are_not_held_back_by_bytes(store, commit):
    writes = await finished(store, *(commit.insert([new_job()]) for _ in range(900)))
    assert [len(batch.inserts) for batch in writes] == [900]


async def test_what_is_larger_than_a_write_is_written_alone(store, commit):
    sizes = (100, 3 * BATCH_BYTES, 100)
    writes = await finished(store, *(commit.insert([new_job(payload=bytes(size))]) for size in sizes))
    assert [len(batch.inserts[0].payload) for batch in writes] == list(sizes)


async def test_a_settlement_never_overtakes_the_notes_of_its_claim(store, commit):
    for number in range(20):
        commit.note_soon(note(number, MIB))
    ends = [commit.settle(succeeded(claim(number))) for number in range(20)]
    writes = await finished(store, *ends)
    noted = set()
    for batch in writes:
        noted |= {each.id for each in batch.notes}
        assert noted.issuperset(end.id for end in batch.settles)
    assert len(noted) == 20


async def test_many_notes_do_not_hold_back_settlements_of_other_claims(store, commit):
    for number in range(20):
        commit.note_soon(note(number, MIB))
    writes = await finished(store, commit.settle(succeeded(claim(99))))
    assert [end.id for end in writes[0].settles] == ["job-99"]


async def test_drain_waits_for_all_writes_of_large_operations(store, commit):
    ended = []
    for number in range(40):
        commit.settle_soon(succeeded(claim(number), result=bytes(5 * MIB)), ended.append)
    draining = asyncio.ensure_future(commit.drain())
    await asyncio.sleep(0)
    store.open.set()
    await draining
    assert len(ended) == 40


async def test_drain_waits_for_all_writes_of_many_operations_of_each_kind(store, commit):
    ended, many = [], 4 * PAGE
    for number in range(many):
        commit.note_soon(note(number, 1))
        commit.settle_soon(succeeded(claim(number)), ended.append)
    draining = asyncio.ensure_future(commit.drain())
    await asyncio.sleep(0)
    store.open.set()
    await draining
    assert len(ended) == many


@pytest.mark.parametrize("waiting", [1, 4 * PAGE])
async def test_drain_does_not_wait_for_operations_that_arrive_later(store, commit, waiting):
    ended = []

    def next_one(answer):
        ended.append(answer)
        if len(ended) < waiting + 100:
            commit.settle_soon(succeeded(claim(1)), next_one)

    for _ in range(waiting - 1):
        commit.settle_soon(succeeded(claim(1)), ended.append)
    commit.settle_soon(succeeded(claim(1)), next_one)
    store.open.set()
    await commit.drain()
    assert len(ended) >= waiting
    assert len(store.writes) <= 3 + 2 * waiting // PAGE, "two for each page that waited, and the one in flight"


def test_pages_of_jobs_fit_one_write_each():
    jobs = [new_job(payload=bytes(size)) for size in (100, 5 * MIB, 5 * MIB, 9 * MIB, 100)]
    assert [len(page) for page, _ in pages(jobs)] == [2, 1, 1, 1]
    assert [len(page) for page, _ in pages([new_job() for _ in range(2500)])] == [1000, 1000, 500]
    assert [len(page) for page, _ in pages(jobs, 1)] == [1] * 5
    assert [len(page) for page, _ in pages(jobs[3:])] == [1, 1], "no page is empty"
    assert [page for page, _ in pages([])] == []


def test_a_page_of_jobs_may_be_full_to_the_byte_and_comes_with_its_bytes():
    half = new_job(payload=bytes(BATCH_BYTES // 2 - OPERATION_BYTES))
    assert list(pages([half] * 5)) == [([half] * 2, BATCH_BYTES), ([half] * 2, BATCH_BYTES), ([half], BATCH_BYTES // 2)]
