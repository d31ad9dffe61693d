"""Transitions and minute statistics, recorded in the commit that makes them."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

from holdfast.core.operations import MinuteStats, Transition
from holdfast.store.protocol import MINUTE_STATS_KEPT, TRANSITIONS_KEPT, WATCH, Batch, Store
from holdfast.testing.build import (
    ask,
    cancellation,
    cancelled,
    change,
    dead,
    deletion,
    failed,
    new_job,
    released,
    retrial,
    says,
    snoozed,
    succeeded,
    swept,
)
from holdfast.testing.verbs import apply, claim_one, enqueue, insert, job, note, running, settle

from .harness import Harness
from .topic import Topic, requires

MINUTE = 60_000_000


def changes_of(transitions: list[Transition]) -> list[tuple[str, str]]:
    return [(transition.id, transition.state) for transition in transitions]


async def watch(store: Store) -> str:
    """Begin to record; the cursor from which to read."""
    return (await store.transitions(None, 100)).cursor


async def since(store: Store, cursor: str) -> list[tuple[str, str]]:
    """All transitions since a cursor."""
    found: list[Transition] = []
    while True:
        answer = await store.transitions(cursor, 100)
        assert not answer.missed
        if not answer.transitions:
            return changes_of(found)
        found += answer.transitions
        cursor = answer.cursor


class TestTransitions(Topic):
    async def test_recording_begins_with_the_first_call(self, store: Store) -> None:
        await enqueue(store, "before")
        answer = await store.transitions(None, 100)
        assert answer.transitions == []
        assert not answer.missed
        await enqueue(store, "after")
        assert await since(store, answer.cursor) == [("after", "queued")]

    async def test_transitions_of_a_job_are_in_order(self, store: Store) -> None:
        cursor = await watch(store)
        first = await running(store, "a")
        await settle(store, failed(first, delay=0.0))
        await settle(store, succeeded(await claim_one(store)))
        assert await since(store, cursor) == [
            ("a", "queued"),
            ("a", "running"),
            ("a", "queued"),
            ("a", "running"),
            ("a", "succeeded"),
        ]

    async def test_a_transition_has_its_time(self, store: Store) -> None:
        cursor = await watch(store)
        before = await store.now()
        await enqueue(store, "a")
        [transition] = (await store.transitions(cursor, 100)).transitions
        assert before <= transition.at <= await store.now()

    async def test_every_end_of_a_claim_is_a_transition(self, store: Store) -> None:
        claims = {name: await running(store, name) for name in ("die", "stop", "wait", "sleep", "back", "lose")}
        cursor = await watch(store)
        await settle(store, dead(claims["die"]))
        await settle(store, cancelled(claims["stop"]))
        await settle(store, failed(claims["wait"], delay=60.0))
        await settle(store, snoozed(claims["sleep"], delay=60.0))
        await settle(store, released(claims["back"]))
        [lost] = [each for each in await store.expired(100, "ann") if each.record.id == "lose"]
        await settle(store, swept(lost))
        assert await since(store, cursor) == [
            ("die", "dead"),
            ("stop", "cancelled"),
            ("wait", "failed"),
            ("sleep", "scheduled"),
            ("back", "queued"),
            ("lose", "queued"),
        ]

    async def test_a_cancellation_instead_of_waiting_is_a_transition(self, store: Store) -> None:
        record = await running(store, "a")
        await apply(store, cancellation(await job(store, "a")))
        cursor = await watch(store)
        await settle(store, failed(record, delay=60.0))
        assert await since(store, cursor) == [("a", "cancelled")]

    async def test_the_end_of_a_job_with_retention_0_is_a_transition(self, store: Store) -> None:
        record = await running(store, "a")
        cursor = await watch(store)
        await settle(store, succeeded(record, keep=0.0))
        assert await since(store, cursor) == [("a", "succeeded")]

    async def test_an_operators_changes_of_state_are_transitions(self, store: Store) -> None:
        await enqueue(store, "a")
        cursor = await watch(store)
        await apply(store, cancellation(await job(store, "a")))
        await apply(store, retrial(await job(store, "a")))
        await apply(store, deletion(await job(store, "a")))
        assert await since(store, cursor) == [("a", "cancelled"), ("a", "queued"), ("a", "deleted")]

    async def test_a_write_without_change_of_state_is_no_transition(self, store: Store) -> None:
        record = await running(store, "a")
        cursor = await watch(store)
        await note(store, says(record, progress=b"{}"))
        await apply(store, change(await job(store, "a"), meta={"by": "hand"}))
        await apply(store, cancellation(await job(store, "a")))
        assert await since(store, cursor) == []

    async def test_a_refused_write_is_no_transition(self, store: Store) -> None:
        record = await running(store, "a")
        await enqueue(store, "keyed", key="k")
        cursor = await watch(store)
        await insert(store, new_job("other", key="k"))
        await settle(store, succeeded(record, fence=record.fence + 1))
        assert await since(store, cursor) == []

    async def test_transitions_of_a_batch_are_in_the_order_of_its_fields(self, store: Store) -> None:
        record = await running(store, "a")
        cursor = await watch(store)
        await store.write(Batch(inserts=[new_job("b"), new_job("c")], settles=[succeeded(record)], asks=[ask(limit=1)]))
        assert await since(store, cursor) == [
            ("b", "queued"),
            ("c", "queued"),
            ("a", "succeeded"),
            ("b", "running"),
        ]

    async def test_transitions_are_read_page_by_page(self, store: Store) -> None:
        cursor = await watch(store)
        for number in range(5):
            await enqueue(store, f"job{number}")
        first = await store.transitions(cursor, 2)
        assert changes_of(first.transitions) == [("job0", "queued"), ("job1", "queued")]
        assert await since(store, first.cursor) == [(f"job{number}", "queued") for number in (2, 3, 4)]

    async def test_two_readers_are_independent(self, store: Store, harness: Harness) -> None:
        first = await watch(store)
        await enqueue(store, "a")
        second = await watch(await harness.another(store))
        await enqueue(store, "b")
        assert await since(store, first) == [("a", "queued"), ("b", "queued")]
        assert await since(store, second) == [("b", "queued")]

    @requires("multi_process")
    async def test_transitions_of_another_process_are_reported(self, store: Store, harness: Harness) -> None:
        cursor = await watch(store)
        await enqueue(await harness.another(store), "a")
        assert await since(store, cursor) == [("a", "queued")]

    @requires("manual_time")
    async def test_a_late_reader_gets_missed(self, store: Store, harness: Harness) -> None:
        cursor = await watch(store)
        await harness.pass_time(WATCH + 1)
        await enqueue(store, "unseen")
        answer = await store.transitions(cursor, 100)
        assert (answer.transitions, answer.missed) == ([], True)
        await enqueue(store, "seen")
        assert await since(store, answer.cursor) == [("seen", "queued")]

    @requires("manual_time")
    async def test_reading_extends_the_recording(self, store: Store, harness: Harness) -> None:
        cursor = await watch(store)
        for _ in range(3):
            await harness.pass_time(WATCH * 0.6)
            assert await since(store, cursor) == []
        await enqueue(store, "a")
        assert await since(store, cursor) == [("a", "queued")]

    async def test_a_reader_that_lags_behind_gets_missed(self, store: Store) -> None:
        cursor = await watch(store)
        for _ in range(5):
            await insert(store, *[new_job() for _ in range(TRANSITIONS_KEPT // 2)])
            await store.tidy(1000)
        answer = await store.transitions(cursor, 100)
        assert answer.missed or len(answer.transitions) >= 100, "either all are reported, or missed is set"
        if answer.missed:
            assert answer.transitions == []


class TestMinuteStats(Topic):
    async def test_an_empty_store_has_none(self, store: Store) -> None:
        assert await store.stats_by_minute(0) == []

    async def test_ends_are_counted_by_minute_queue_and_outcome(self, store: Store) -> None:
        before = await store.now() // MINUTE * MINUTE
        for _ in range(2):
            await settle(store, succeeded(await running(store, queue="a")))
        await settle(store, dead(await running(store, queue="a")))
        await settle(store, failed(await running(store, queue="b"), delay=60.0))
        await settle(store, released(await running(store, queue="c")))
        found = await store.stats_by_minute(before)
        counts: dict[tuple[str, str], int] = {}
        for minute in found:
            assert (minute.at % MINUTE, minute.task) == (0, "work")
            assert before <= minute.at <= await store.now()
            place = (minute.queue, minute.outcome)
            counts[place] = counts.get(place, 0) + minute.count
        assert counts == {("a", "succeeded"): 2, ("a", "dead"): 1, ("b", "failed"): 1, ("c", "released"): 1}

    async def test_there_is_one_for_each_minute_queue_task_and_outcome(self, store: Store) -> None:
        for queue, task in (("b", "x"), ("a", "y"), ("a", "x"), ("ab", "x"), ("b", "x")):
            await settle(store, succeeded(await running(store, queue=queue, task=task)))
            await settle(store, dead(await running(store, queue=queue, task=task)))
        found = [(one.at, one.queue, one.task, one.outcome) for one in await store.stats_by_minute(0)]
        assert len(found) == len(set(found))
        assert len({place[1:] for place in found}) == 8

    async def test_many_ends_in_one_batch_are_counted(self, store: Store) -> None:
        await insert(store, *[new_job() for _ in range(60)], *[new_job(queue="other") for _ in range(7)])
        [claims] = (await store.write(Batch(asks=[ask("ann", "default", "other", limit=100)]))).asks
        ends = [succeeded(record) for record in claims.records]
        ends[3] = dead(claims.records[3])
        ends[5] = succeeded(claims.records[5], keep=0.0)
        await store.write(Batch(settles=ends))
        counts: dict[tuple[str, str], int] = {}
        for minute in await store.stats_by_minute(0):
            counts[minute.queue, minute.outcome] = counts.get((minute.queue, minute.outcome), 0) + minute.count
        assert counts == {("default", "succeeded"): 59, ("default", "dead"): 1, ("other", "succeeded"): 7}

    async def test_a_settlement_that_is_sent_again_counts_once(self, store: Store) -> None:
        end = succeeded(await running(store))
        assert await settle(store, end)
        assert await settle(store, end)
        assert [minute.count for minute in await store.stats_by_minute(0)] == [1]

    async def test_a_refused_settlement_is_not_counted(self, store: Store) -> None:
        record = await running(store)
        assert not await settle(store, succeeded(record, token=record.token + 1))
        assert await store.stats_by_minute(0) == []

    async def test_a_cancellation_instead_of_waiting_counts_as_cancelled(self, store: Store) -> None:
        record = await running(store, "a")
        await apply(store, cancellation(await job(store, "a")))
        await settle(store, failed(record, delay=60.0))
        assert [minute.outcome for minute in await store.stats_by_minute(0)] == ["cancelled"]

    @requires("manual_time")
    async def test_waiting_and_running_times_are_added_up(self, store: Store, harness: Harness) -> None:
        for waiting_for, runs in ((2, 3), (5, 7)):
            await enqueue(store)
            await harness.pass_time(waiting_for)
            record = await claim_one(store)
            await harness.pass_time(runs)
            await settle(store, succeeded(record))
        found = await store.stats_by_minute(0)
        assert sum(minute.count for minute in found) == 2
        assert (sum(m.waited for m in found), sum(m.ran for m in found)) == (7_000_000, 10_000_000)

    async def test_ends_are_counted_by_task(self, store: Store) -> None:
        """A queue and a task with the same letters at their border are not confused."""
        places = [("a", "b.c"), ("a:b", "c"), ("ab", "c"), ("a", "bc"), ("é", "日"), ("a", "b.c")]
        for queue, task in places:
            await settle(store, succeeded(await running(store, queue=queue, task=task)))
        await settle(store, failed(await running(store, queue="a", task="b.c"), delay=60.0))
        counts: dict[tuple[str, str, str], int] = {}
        for minute in await store.stats_by_minute(0):
            assert sum(minute.waits) == sum(minute.runs) == minute.count
            place = (minute.queue, minute.task, minute.outcome)
            counts[place] = counts.get(place, 0) + minute.count
        ended = {(*place, "succeeded"): places.count(place) for place in places}
        assert counts == {**ended, ("a", "b.c", "failed"): 1}

    @requires("manual_time")
    async def test_waiting_and_running_times_are_in_histograms(self, store: Store, harness: Harness) -> None:
        """One settlement with its own retention, several in one batch, and a failure: each is counted in its bucket."""
        record = await running(store, "late")
        await harness.pass_time(40 * 24 * 3600)
        await settle(store, failed(record, delay=10e6))
        times = ((0, 0), (0.001, 0.0009), (0.0039, 0.5), (3, 7000), (5, 7000))
        for wait, runs in times:
            await enqueue(store)
            await harness.pass_time(wait)
            record = await claim_one(store)
            await harness.pass_time(runs)
            await settle(store, succeeded(record))
        await insert(store, *[new_job() for _ in range(3)], new_job(task="other"))
        await harness.pass_time(3)
        [claims] = (await store.write(Batch(asks=[ask("ann", "default", limit=9)]))).asks
        await harness.pass_time(2)
        await store.write(Batch(settles=[succeeded(record) for record in claims.records]))
        sums: dict[tuple[str, str], tuple[Counter[int], Counter[int]]] = {}
        for minute in await store.stats_by_minute(0):
            waits, runs = sums.setdefault((minute.task, minute.outcome), (Counter(), Counter()))
            for counts, found in ((waits, minute.waits), (runs, minute.runs)):
                assert found[-1], "empty buckets at the end are left out"
                counts.update({bucket: count for bucket, count in enumerate(found) if count})
        assert sums == {
            ("work", "succeeded"): ({0: 1, 1: 1, 2: 1, 12: 4, 13: 1}, {0: 2, 9: 1, 11: 3, 23: 2}),
            ("other", "succeeded"): ({12: 1}, {11: 1}),
            ("work", "failed"): ({0: 1}, {31: 1}),
        }

    @requires("manual_time")
    async def test_minutes_are_from_a_given_time_on(self, store: Store, harness: Harness) -> None:
        for _ in range(3):
            for queue in ("b", "a"):
                await settle(store, succeeded(await running(store, queue=queue)))
            await harness.pass_time(60)
        found = sorted(await store.stats_by_minute(0), key=attrgetter("at", "queue"))
        starts = sorted({minute.at for minute in found})
        assert [(minute.at, minute.queue) for minute in found] == [(at, queue) for at in starts for queue in "ab"]
        assert sorted(await store.stats_by_minute(starts[1]), key=attrgetter("at", "queue")) == found[2:]
        assert found[0] == MinuteStats(starts[0], "a", "work", "succeeded", 1, 0, 0, (1,), (1,))

    @requires("manual_time")
    async def test_old_minutes_are_removed(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store)))
        await harness.pass_time(MINUTE_STATS_KEPT + 120)
        await settle(store, succeeded(await running(store)))
        await store.tidy(1000)
        assert len(await store.stats_by_minute(0)) == 1
