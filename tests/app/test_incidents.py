"""Percentiles by queue and task, a span compared with before and after, an error group over time, ended workers."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, InvalidJob
from holdfast.client import worker_log
from holdfast.client.latency import compared, latency, window
from holdfast.core.operations import Holder, HolderInfo, MinuteStats
from support.inside import session_of
from support.workers import work_off

MINUTE = 60_000_000


def stats(at, queue, task, outcome, count, waits=(), runs=()):  # noqa: PLR0917
    return MinuteStats(at * MINUTE, queue, task, outcome, count, 0, 0, waits, runs)


def test_a_span_is_compared_with_as_long_before_and_after():
    minutes = [
        stats(7, "a", "x", "succeeded", 99),  # too early
        stats(8, "a", "x", "succeeded", 10, (10,), (10,)),
        stats(10, "a", "x", "failed", 3, (0, 0, 3), (3,)),
        stats(11, "b", "x", "dead", 2, (2,), (2,)),
        stats(12, "b", "y", "succeeded", 1, (1,), (1,)),
        stats(14, "b", "y", "succeeded", 99),  # too late
    ]
    found = compared(minutes, 10 * MINUTE, 12 * MINUTE)
    total = found.total
    assert (total.before.count, total.within.count, total.after.count) == (10, 5, 1)
    assert total.within.outcomes == {"dead": 2, "failed": 3}
    assert [(one.name, one.within.count, one.after.count) for one in found.queues] == [("a", 3, 0), ("b", 2, 1)]
    assert [one.name for one in found.tasks] == ["x", "y"]
    assert found.queues[0].within.wait.p50 == pytest.approx(0.003)
    assert found.queues[0].after.wait.p50 is None
    assert [window(at * MINUTE, 10 * MINUTE, 12 * MINUTE) for at in (7, 8, 9, 10, 11, 12, 13, 14)] == [
        None, 0, 0, 1, 1, 2, 2, None
    ]  # fmt: skip


def test_percentiles_are_over_all_outcomes_and_minutes_of_a_step():
    minutes = [stats(at, "q", "t", outcome, 1, (0, 1), (1,)) for at in (0, 1, 2) for outcome in ("dead", "failed")]
    found = latency(minutes, 120)
    assert [(one.at.minute, one.activity.count) for one in found.steps] == [(0, 4), (2, 2)]
    [queue], [task] = found.queues, found.tasks
    assert (queue.name, task.name, queue.activity.count) == ("q", "t", 6)
    assert 0.001 <= queue.activity.wait.p99 <= 0.002
    assert queue.activity.run.p99 < 0.001


async def test_failed_attempts_of_a_span_and_of_a_group(app):
    @app.task(max_attempts=2, retry=Backoff(base=0.0, factor=1, jitter=0))
    async def breaks(n: int) -> None:
        raise OSError(f"disk {n} is full")

    for number in range(3):
        await breaks.enqueue(number)
    await work_off(app)
    await work_off(app)
    now = datetime.now(UTC)
    found = await app.errors.compare(now - timedelta(minutes=5), now + timedelta(minutes=1))
    [group] = found.groups
    assert (group.pattern, group.before, group.within, group.after) == ("OSError: disk … is full", 0, 6, 0)
    assert sum(one.within for one in found.workers) == sum(one.within for one in found.versions) == 6
    assert (found.complete, (await app.timeseries.compare(now - timedelta(minutes=5), now)).total.before.count) == (
        True,
        0,
    )
    history = await app.errors.group(group.fingerprint, since=3600, step=60)
    assert (history.jobs, history.attempts, history.states) == (3, 6, {"dead": 3})
    assert sum(step.count for step in history.steps) == 6
    assert sum(history.queues.values()) == sum(history.versions.values()) == 6
    assert history.first_seen <= history.last_seen <= datetime.now(UTC)
    assert await app.errors.group("unknown") is None


async def test_a_span_must_be_aware_and_short(app):
    now = datetime.now(UTC)
    for start, end in ((now, now - timedelta(minutes=2)), (now - timedelta(days=2), now), (datetime(2026, 1, 1), now)):  # noqa: DTZ001
        with pytest.raises(InvalidJob):
            await app.timeseries.compare(start, end)
        with pytest.raises(InvalidJob):
            await app.errors.compare(start, end)


def info(name, *, alive=True, jobs=(), **about):
    return HolderInfo(Holder(name, 30.0, node="n", version="1", **about), 1, 0.0, alive, jobs)


def test_workers_that_come_and_go_are_recorded():
    known = worker_log.updated({}, [info("a", release="r1"), info("b"), info("m", kind="manual")], 100)
    assert {id: one.ended_at for id, one in known.items()} == {"a": None, "b": None}
    later = worker_log.updated(known, [info("b", alive=False, jobs=("j",)), info("c")], 200)
    assert {id: (one.ended_at, one.lost) for id, one in later.items()} == {
        "a": (200, False), "b": (200, True), "c": (None, False),
    }  # fmt: skip
    assert worker_log.updated(later, [info("c")], 300) == later, "an end is recorded once"
    assert worker_log.updated(later, [info("c")], 200 + worker_log.KEPT).keys() == {"c"}
    many = {str(n): worker_log.Seen("n", n, "1", "", 0, ended_at=n + 1) for n in range(worker_log.MAX_KEPT + 2)}
    assert len(worker_log.updated(many, [], 1000)) == worker_log.MAX_KEPT
    assert "0" not in worker_log.updated(many, [], 1000)


async def test_an_ended_worker_is_listed_with_its_release(make_app):
    app = make_app(release="2026.11-abc")
    async with app:
        store = session_of(app).store
        holder = Holder("gone", 30.0, node="n", pid=7, version="1", release="2026.11-abc", started_at=await store.now())
        await store.heartbeat([holder])
        assert await app.timeseries.record_workers()
        assert not await app.timeseries.record_workers(), "nothing has changed"
        assert await app.timeseries.ended_workers() == []
        await store.leave(["gone"])
        assert await app.timeseries.record_workers()
        [ended] = await app.timeseries.ended_workers()
        assert (ended.id, ended.pid, ended.release, ended.lost) == ("gone", 7, "2026.11-abc", False)
        await store.heartbeat([holder])
        assert await app.timeseries.ended_workers() == [], "a worker that is back is not listed"
        await session_of(app).store.put_record(worker_log.KIND, worker_log.NAME, b"\xff")
        assert await app.timeseries.record_workers(), "a damaged record is replaced"
