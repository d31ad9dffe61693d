"""Final states: what holds for each of them, also for one that is added later."""

from __future__ import annotations

import pytest

from holdfast.core.job import TERMINAL, State
from holdfast.core.operations import Inserted
from holdfast.store.protocol import Store, records_of
from holdfast.testing.build import cancellation, deletion, ending, failed, new_job, retrial
from holdfast.testing.verbs import apply, claim, enqueue, gone, insert, job, running, settle

from .harness import Harness
from .overview import counted
from .reading import ids
from .topic import Topic, requires
from .transitions import since, watch
from .waking import notifies


@pytest.mark.parametrize("state", sorted(TERMINAL))
class TestFinalStates(Topic):
    async def test_a_job_in_it_is_counted_found_and_not_claimed(self, store: Store, state: State) -> None:
        cursor = await watch(store)
        assert await settle(store, ending(await running(store, "a"), state, record_end=True))
        await settle(store, failed(await running(store, "b"), delay=60.0))
        assert await since(store, cursor) == [
            ("a", "queued"),
            ("a", "running"),
            ("a", state),
            ("b", "queued"),
            ("b", "running"),
            ("b", "failed"),
        ]
        assert await claim(store) == []
        assert [counted(queue.counts) for queue in await store.stats()] == [{state: 1, "failed": 1}]
        assert await ids(store, states=(state,)) == ["a"]
        assert await ids(store, states=(state, "failed")) == ["b", "a"]
        assert await ids(store, states=tuple(TERMINAL)) == ["a"]
        assert await ids(store, states=tuple(TERMINAL - {state})) == []
        assert set(await records_of(store, "ended")) == {"a"}

    async def test_a_job_in_it_has_ended(self, store: Store, state: State, harness: Harness) -> None:
        held = await running(store, "a", key="k", unique="until_end")
        await apply(store, cancellation(held))  # it ends as the run says
        assert await settle(store, ending(held, state, key_keep=60 * harness.unit))
        ended = await job(store, "a")
        assert (ended.state, ended.cancel, ended.waiting_for) == (state, False, None)
        assert ended.finished_at is not None
        assert not await settle(store, failed(held))
        assert await store.key_owners(["k"]) == [None]
        assert await insert(store, new_job("b", key="k", unique="until_end")) == [Inserted("created", "b")]

    async def test_a_job_in_it_is_removed_after_its_retention(
        self, store: Store, state: State, harness: Harness
    ) -> None:
        await settle(store, ending(await running(store, "a"), state, keep=2 * harness.unit))
        assert (await store.tidy(100)).jobs == 0
        await harness.pass_time(3 * harness.unit)
        assert (await store.tidy(100)).jobs == 1
        assert await gone(store, "a")
        assert await ids(store, states=(state,)) == []

    async def test_a_job_in_it_can_be_retried_and_deleted(self, store: Store, state: State) -> None:
        await settle(store, ending(await running(store, "a"), state))
        await settle(store, ending(await running(store, "b"), state))
        assert await apply(store, retrial(await job(store, "a")))
        assert [record.id for record in await claim(store)] == ["a"]
        assert await apply(store, deletion(await job(store, "b")))
        assert await ids(store, states=(state,)) == []
        assert [counted(queue.counts) for queue in await store.stats()] == [{"running": 1}]

    @requires("hints")
    async def test_its_listeners_are_notified(self, store: Store, state: State, harness: Harness) -> None:
        held = await running(store)
        listener = (await harness.another(store)).listen([f"job/{held.id}"])
        await settle(store, ending(held, state))
        await notifies(listener, harness)
        listener.close()

    async def test_a_lost_job_can_end_in_it(self, store: Store, state: State, harness: Harness) -> None:
        held = await running(store, "a", key="k")
        await apply(store, cancellation(held))
        [lost] = await store.expired(100, "ann")
        end = ending(lost.record, state, expected_heartbeat=lost.heartbeat, keep=2 * harness.unit, record_end=True)
        assert await settle(store, end)
        ended = await job(store, "a")
        assert (ended.state, ended.holder, ended.cancel) == (state, "ann", False)
        assert ended.finished_at is not None
        assert ended.expires_at is not None
        assert set(await records_of(store, "ended")) == {"a"}
        assert await store.key_owners(["k"]) == [None]

    async def test_an_operator_can_end_a_waiting_job_in_it(self, store: Store, state: State) -> None:
        waiting = await enqueue(store, "a", key="k")
        assert await apply(store, cancellation(waiting, state=state))
        assert (await job(store, "a")).state == state
        assert await ids(store, states=(state,)) == ["a"]
        assert await claim(store) == []
        assert await store.key_owners(["k"]) == [None]
