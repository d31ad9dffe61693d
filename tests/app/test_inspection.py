"""Jobs, stats and workers: what an operator sees."""

import asyncio
from datetime import UTC, timedelta

import pytest

from holdfast import InvalidJob, JobNotFound, State
from holdfast.app import parts_of
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.ids import words
from support.inside import session_of
from support.workers import work_off, working


@pytest.fixture
def app(make_app):
    app = make_app()

    @app.task
    def good() -> None: ...

    @app.task(max_attempts=1, queue="other")
    def bad() -> None:
        raise RuntimeError("no")

    return app


@pytest.fixture
def task(app):
    return lambda name: parts_of(app).registry.tasks[name]


@pytest.fixture
async def some_of_each(app, task):
    """One job per state, under its name."""
    made = {"succeeded": await task("good").enqueue(), "dead": await task("bad").enqueue()}
    await work_off(app)
    made["running"] = await app.submit("by hand", b"", queue="hand")
    await app.claim("hand")
    made["scheduled"] = await task("good").using(delay=600, tags=["later", "x"]).enqueue()
    made["failed"] = await app.submit("by hand", b"", queue="hand")
    [claim] = await app.claim("hand")
    await claim.fail("again, please")
    made["cancelled"] = await task("good").enqueue()
    await made["cancelled"].cancel()
    made["queued"] = await task("good").using(tags=["x"]).enqueue()
    return {state: handle.id for state, handle in made.items()}


async def listed(app, **where):
    return [job.id for job in (await app.jobs(**where)).jobs]


# -- jobs


async def test_jobs_are_listed_newest_first(app, task):
    ids = [(await task("good").enqueue()).id for _ in range(5)]
    assert await listed(app) == ids[::-1]


async def test_jobs_are_found_by_state(app, some_of_each):
    for state, id in some_of_each.items():
        assert await listed(app, state=state) == [id]
    assert set(await listed(app, state=["queued", "dead"])) == {some_of_each["queued"], some_of_each["dead"]}


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("pending", "queued"),
        ("processing", "running"),
        ("completed", "succeeded"),
        ("FAILED", "failed"),
        ("Dead", "dead"),
        (State.CANCELLED, "cancelled"),
    ],
)
async def test_everyday_words_for_states_are_understood(app, some_of_each, word, state):
    assert await listed(app, state=word) == [some_of_each[state]]


async def test_jobs_are_found_by_queue_task_and_tag_and_all_must_match(app, some_of_each):
    assert await listed(app, queue="other") == [some_of_each["dead"]]
    assert len(await listed(app, task="good")) == 4
    assert await listed(app, tag="x") == [some_of_each["queued"], some_of_each["scheduled"]]
    assert await listed(app, tag="x", state="scheduled", task="good", queue="default") == [some_of_each["scheduled"]]
    assert await listed(app, tag="x", queue="other") == []
    assert await listed(app, tag="") == await listed(app, queue="no such queue") == []


async def test_a_tag_is_matched_whole_and_literally(app, task):
    await task("good").using(tags=["a%b", "urgent"]).enqueue()
    for wrong in ("a", "%", "a_b", "urg", "%urgent%", '["', "a%b,urgent"):
        assert await listed(app, tag=wrong) == []
    assert len(await listed(app, tag="a%b")) == 1


async def test_pages_follow_each_other_without_gaps_or_repeats(app, task):
    ids = [(await task("good").enqueue()).id for _ in range(25)]
    seen, cursor, pages = [], None, 0
    while True:
        page = await app.jobs(limit=10, cursor=cursor)
        seen += [job.id for job in page.jobs]
        pages += 1
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == ids[::-1]
    assert pages == 3


async def test_a_full_last_page_has_no_cursor(app, task):
    for _ in range(10):
        await task("good").enqueue()
    assert (await app.jobs(limit=10)).cursor is None


async def test_a_cursor_stays_valid_while_jobs_come_and_go(app, task):
    ids = [(await task("good").enqueue()).id for _ in range(10)]
    first = await app.jobs(limit=5)
    await task("good").enqueue()
    await app.delete(ids[2])
    rest = await app.jobs(limit=50, cursor=first.cursor)
    assert [job.id for job in first.jobs + rest.jobs] == [id for id in ids[::-1] if id != ids[2]]


async def test_a_filter_and_a_cursor_work_together(app, task):
    for n in range(20):
        await task("good").using(tags=["even"] if n % 2 == 0 else []).enqueue()
    first = await app.jobs(tag="even", limit=6)
    rest = await app.jobs(tag="even", limit=6, cursor=first.cursor)
    assert (len(first.jobs), len(rest.jobs), rest.cursor) == (6, 4, None)


@pytest.mark.parametrize("cursor", ["nonsense", "", "½", "1 OR 1=1", "9" * 400, 5, "\ud800"])
async def test_a_cursor_that_no_page_gave_is_refused(app, task, cursor):
    await task("good").enqueue()
    with pytest.raises(InvalidJob, match="cursor"):
        await app.jobs(cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1001, "10", 1.5, None, True])
async def test_a_limit_out_of_bounds_is_refused(app, limit):
    with pytest.raises(InvalidJob, match="limit must be a whole number from 1 to 1000"):
        await app.jobs(limit=limit)


@pytest.mark.parametrize("state", ["open", "", ["queued", "nope"], [None], 5])
async def test_a_state_that_there_is_not_is_refused_with_those_that_there_are(app, state):
    with pytest.raises(InvalidJob, match=r"unknown state .*queued.*succeeded"):
        await app.jobs(state=state)


async def test_one_job_that_cannot_be_shown_does_not_hide_the_others(app):
    from holdfast.core.job import NewJob
    from holdfast.store.protocol import Batch

    await app.open()
    strange = [
        NewJob("not json", "t", "default", b"\xff\xfe"),
        NewJob("deep", "t", "default", b"[" * 5000 + b"]" * 5000),
        NewJob("unknown codec", "t", "default", b"abc", codec="from the future"),
        NewJob("nan", "t", "default", b'{"a": NaN}'),
        NewJob("far future", "t", "default", b"{}", run_at=2**62),
    ]
    await session_of(app).store.write(Batch(inserts=strange))
    assert len((await app.jobs()).jobs) == 5


@pytest.mark.parametrize("id", ["", "\ud800", "a\0b", 5, None, b"x", ["x"], "x" * 10_000], ids=words)
async def test_what_can_be_no_id_is_not_found(app, id):
    handle = app.handle(id)
    for call in (app.job, app.cancel, app.retry, app.delete):
        with pytest.raises(JobNotFound):
            await call(id)
    for asked in (handle.update_meta(), handle.mark_failed("x"), handle.result(timeout=30)):
        with pytest.raises(JobNotFound):
            await asked


async def test_a_strange_id_does_not_disturb_those_who_ask_at_the_same_time(app):
    handle = await app.enqueue("noop")
    answers = await asyncio.gather(app.job("\ud800"), handle.job(), app.job("no such"), return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == ["JobNotFound", "Job", "JobNotFound"]


@pytest.mark.parametrize("part", ["queue", "task", "tag"])
@pytest.mark.parametrize("value", ["\ud800", 5, b"x", ["x"], "a\0b"], ids=words)
async def test_a_filter_that_can_match_nothing_is_refused_or_matches_nothing(app, part, value):
    await app.enqueue("noop")
    for call in (app.jobs, app.bulk.purge):
        try:
            found = await call(state="queued", **{part: value})
        except InvalidJob:
            continue
        assert found == 0 or found.jobs == []
    assert (await app.stats()).counts["queued"] == 1


# -- stats


async def test_stats_count_every_state_per_queue(app, some_of_each):
    stats = await app.stats()
    assert {state: count for state, count in stats.counts.items() if count} == dict.fromkeys(some_of_each, 1)
    assert stats.counts["blocked"] == 0, "zeros are there to be read"
    by_name = {queue.name: queue for queue in stats.queues}
    assert list(by_name) == ["default", "hand", "other"]
    assert by_name["other"].counts == {"dead": 1}
    assert by_name["hand"].counts == {"running": 1, "failed": 1}


async def test_stats_of_an_empty_store_are_zeros(app):
    stats = await app.stats()
    assert (stats.queues, stats.workers, sum(stats.counts.values())) == ([], 0, 0)


async def test_stats_know_how_long_the_oldest_job_waits(app, task):
    first = await (await task("good").enqueue()).job()
    await task("good").enqueue()
    await task("good").using(delay=60).enqueue()
    [queue] = (await app.stats()).queues
    assert queue.oldest == int(first.run_at.timestamp() * 1_000_000)


# -- workers


async def test_workers_are_listed_while_they_live(app):
    import os

    assert await app.workers() == []
    async with working(app, queues=["default", "mail"], concurrency=3, lease=30):
        [worker] = await eventually(app.workers)
        assert (worker.kind, worker.pid, worker.queues, worker.slots) == ("worker", os.getpid(), ("default", "mail"), 3)
        assert {"good", "bad", "noop"} <= set(worker.tasks)
        assert worker.last_heartbeat < 10
        assert worker.started_at.tzinfo is UTC
        assert (await app.stats()).workers == 1
    assert await app.workers() == []
    assert (await app.stats()).workers == 0


async def test_a_worker_that_died_is_not_listed_any_more(make_app):
    from holdfast.client.claims import new_holder

    clock = ManualClock()
    app = make_app(MemoryStore(clock), clock=clock)
    await app.open()
    await parts_of(app).claims.heartbeat(new_holder(session_of(app), "worker", 30.0, ("default",)))
    assert len(await app.workers()) == 1
    clock.advance(timedelta(seconds=31).total_seconds())
    assert await app.workers() == []


# -- updates


async def test_a_job_says_when_it_was_updated_and_by_the_stores_clock(make_app):
    clock = ManualClock()
    app = make_app(MemoryStore(clock=clock), clock=clock)
    handle = await app.submit("by hand", b"", queue="hand", delay=600)
    clock.advance(60)
    await handle.update_meta(note="hello")
    job = await handle.job()
    assert job.updated_at - job.created_at == timedelta(minutes=1)
    assert job.run_at - job.created_at == timedelta(minutes=10)
    clock.advance(600)
    [claim] = await app.claim("hand")
    clock.advance(5)
    await claim.fail("again, please", retry_in=3600)
    job = await handle.job()
    assert job.updated_at - job.created_at == timedelta(seconds=665)
    assert job.updated_at < job.run_at


async def test_failures_and_the_last_error_outlast_the_kept_history(app):
    handle = await app.submit("by hand", b"", queue="hand", max_attempts=0)
    for number in range(53):
        [claim] = await app.claim("hand")
        await claim.fail(f"no {number}", retry_in=0)
    [claim] = await app.claim("hand")
    await claim.complete()
    job = await handle.job()
    assert (len(job.history), job.failures, job.attempt) == (51, 53, 54)
    assert (job.error, job.last_error) == (None, "no 52")


async def test_queues_say_how_many_workers_listen(app, task):
    await task("good").enqueue()
    assert [(queue.name, queue.listeners) for queue in (await app.stats()).queues] == [("default", 0)]
    async with working(app, queues=["default", "idle"]), working(app, queues=["idle"]):
        await eventually(lambda: _listeners(app, {"default": 1, "idle": 2}))
        assert (await app.stats()).workers == 2
    assert [(queue.name, queue.listeners) for queue in (await app.stats()).queues] == [("default", 0)]


async def _listeners(app, expected):
    queues, _, _ = await app.queues()
    return {queue.name: queue.listeners for queue in queues} == expected
