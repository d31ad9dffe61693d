"""enqueue_many that could store only some of its jobs says which."""

from __future__ import annotations

import pytest

from holdfast import KeyConflict, OutcomeUnknown, PartialEnqueue, QueueFull, StoreUnavailable
from holdfast.app import parts_of
from holdfast.store import group_commit
from holdfast.store.reference.memory import MemoryStore


async def test_what_found_room_in_a_full_queue_is_named_and_the_rest_is_none(make_app):
    app = make_app(max_depth=5)
    with pytest.raises(PartialEnqueue) as partly:
        await app.enqueue_many([("noop",)] * 8)
    handles = partly.value.handles
    assert [handle is not None for handle in handles] == [True] * 5 + [False] * 3
    assert isinstance(partly.value.__cause__, QueueFull)
    assert not partly.value.retry_safe
    assert {job.id for job in (await app.jobs()).jobs} == {handle.id for handle in handles[:5]}


async def test_where_nothing_was_stored_the_refusal_itself_is_raised(make_app):
    app = make_app(max_depth=1)
    await app.enqueue("noop")
    with pytest.raises(QueueFull):
        await app.enqueue_many([("noop",)] * 3)


async def test_a_conflict_in_the_middle_keeps_its_neighbours(make_app):
    app = make_app()

    @app.task
    def greet(name: str) -> None: ...

    await greet.using(key="k").enqueue("ann")
    calls = [app.call(greet, "x"), app.call(greet.using(key="k"), "bob"), app.call(greet, "y")]
    with pytest.raises(PartialEnqueue) as partly:
        await app.enqueue_many(calls)
    assert [handle is not None for handle in partly.value.handles] == [True, False, True]
    assert isinstance(partly.value.__cause__, KeyConflict)


async def test_a_store_that_fails_after_the_first_thousand_does_not_hide_it(make_app):
    class FailsLater(MemoryStore):
        writes = 0

        async def write(self, batch):
            self.writes += bool(batch.inserts)
            if self.writes == 2:
                raise StoreUnavailable("down; nothing was written")
            return await super().write(batch)

    app = make_app(FailsLater())
    with pytest.raises(PartialEnqueue) as partly:
        await app.enqueue_many([("noop",)] * 1500)
    assert sum(handle is not None for handle in partly.value.handles) == 1000
    assert (await app.stats()).counts["queued"] == 1000


@pytest.mark.parametrize(("room", "raised"), [(0, OutcomeUnknown), (1, PartialEnqueue)])
async def test_an_unknown_outcome_is_not_hidden_by_an_earlier_refusal(make_app, monkeypatch, room, raised):
    class FailsLater(MemoryStore):
        unsure = False

        async def write(self, batch):
            if self.unsure and any(job.queue == "default" for job in batch.inserts):
                raise OutcomeUnknown("no answer; the write may have happened")
            return await super().write(batch)

    monkeypatch.setattr(group_commit, "RESENDS", ())
    store = FailsLater()
    app = make_app(store, max_depth=1)
    noop = parts_of(app).registry.tasks["noop"]
    if not room:
        await noop.using(queue="full").enqueue()
    store.unsure = True
    with pytest.raises(raised) as failed:
        await app.enqueue_many([noop.using(queue="full").call()] * 1000 + [noop.call()])
    unknown = failed.value if room == 0 else failed.value.__cause__
    assert isinstance(unknown, OutcomeUnknown)
    assert len(unknown.job_ids) == 1


async def test_what_was_stored_before_a_hook_raised_is_named(make_app):
    app = make_app()

    @app.around_enqueue.append
    async def picky(job, insert):
        if job.key == "c":
            raise ValueError("not this one")
        return await insert(job)

    noop = parts_of(app).registry.tasks["noop"]
    with pytest.raises(PartialEnqueue) as partly:
        await app.enqueue_many([noop.using(key=key).call() for key in "abcd"])
    handles = partly.value.handles
    assert isinstance(partly.value.__cause__, ValueError)
    assert [handle is not None for handle in handles] == [True, True, False, False]
    assert {job.id for job in (await app.jobs()).jobs} == {handle.id for handle in handles[:2]}
