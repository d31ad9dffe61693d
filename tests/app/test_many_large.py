"""enqueue_many takes calls as it writes them: bounded by bytes, whatever iterable it is given."""

from __future__ import annotations

import threading

import pytest

from holdfast import Flow, InvalidJob, PartialEnqueue
from holdfast.client.many_calls import AHEAD_BYTES
from holdfast.store.group_commit import BATCH_BYTES
from holdfast.store.reference.memory import MemoryStore
from holdfast.store.sizes import jobs_bytes

LARGE = "x" * 1_000_000
MANY = 60


class Watched(MemoryStore):
    """Records the bytes of each write, and how many calls were taken by then."""

    def __init__(self):
        super().__init__()
        self.taken = 0
        self.stored = 0
        self.written = []
        self.ahead = []

    async def write(self, batch):
        self.ahead.append(self.taken - self.stored)
        self.written.append(jobs_bytes(batch.inserts))
        self.stored += len(batch.inserts)
        return await super().write(batch)


@pytest.fixture
def store():
    return Watched()


@pytest.fixture
def app(make_app, store):
    return make_app(store)


@pytest.fixture
def take(app):
    @app.task
    def take(data: str) -> None: ...

    return take


def calls(store, take, bad=None):
    for number in range(MANY):
        store.taken += 1
        yield (take, 5 if number == bad else LARGE)


async def test_calls_are_taken_a_bounded_way_ahead_of_bounded_writes(app, store, take):
    handles = await app.enqueue_many(calls(store, take))
    assert len({handle.id for handle in handles}) == MANY == store.stored
    assert max(store.written) <= BATCH_BYTES
    assert max(store.ahead) * len(LARGE) <= AHEAD_BYTES + 2 * BATCH_BYTES


def test_a_blocking_caller_is_bounded_too_and_its_generator_runs_on_its_thread(app, store, take):
    threads = set()

    def watched():
        for call in calls(store, take):
            threads.add(threading.current_thread())
            yield call

    assert len(app.sync.enqueue_many(watched())) == MANY
    assert threads == {threading.current_thread()}
    assert max(store.ahead) * len(LARGE) <= AHEAD_BYTES + 2 * BATCH_BYTES


@pytest.mark.parametrize("bad", [0, 23])
async def test_a_wrong_call_among_the_first_stores_nothing(app, store, take, bad):
    with pytest.raises(InvalidJob):
        await app.enqueue_many(calls(store, take, bad))
    assert store.stored == 0


async def test_a_wrong_call_far_behind_them_is_named_with_what_was_stored(app, store, take):
    with pytest.raises(PartialEnqueue) as partly:
        await app.enqueue_many(list(calls(store, take, 50)))
    handles = partly.value.handles
    assert isinstance(partly.value.__cause__, InvalidJob)
    assert len(handles) == MANY
    assert [handle is not None for handle in handles] == [True] * store.stored + [False] * (MANY - store.stored)
    assert 0 < store.stored <= 50


async def test_a_generator_that_fails_is_the_cause_and_has_a_handle_for_each_stored_job(app, store, take):
    def fails():
        yield from calls(store, take)
        raise LookupError("no more")

    with pytest.raises(PartialEnqueue) as partly:
        await app.enqueue_many(fails())
    assert isinstance(partly.value.__cause__, LookupError)
    assert sum(handle is not None for handle in partly.value.handles) == store.stored


async def test_a_flow_of_large_jobs_is_stored_in_bounded_writes_and_whole(app, store, take):
    flow = Flow("large")
    for _ in range(20):
        flow.add(take, LARGE)
    handle = await app.enqueue_flow(flow)
    assert max(store.written) <= BATCH_BYTES
    assert len(await handle.jobs()) == 20
