"""Once: one job for many calls, the first or the last of them."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, InvalidJob, InvalidState, KeyConflict, State, limit
from holdfast.app import parts_of
from holdfast.client.search import Filter
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock, inline
from support.workers import work_off

DAY = 86400


def with_tasks(app):
    ran = app.ran = []

    @app.task
    async def send(to: str, times: int = 1) -> str:
        ran.append((to, times))
        return to

    @app.task
    async def other(to: str) -> None:
        ran.append(to)

    return app


@pytest.fixture
def app(make_app):
    return with_tasks(make_app())


@pytest.fixture
def send(app):
    return parts_of(app).registry.tasks["send"]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def clocked(clock, make_app):
    return with_tasks(make_app(MemoryStore(clock), clock=clock))


async def jobs(app):
    return (await app.jobs()).jobs


# -- unique


async def test_equal_calls_are_one_job_while_it_is_queued(app, send):
    first = await send.using(unique="until_start").enqueue("ann", times=1)
    assert (await send.using(unique="until_start").enqueue("ann", 1)).id == first.id
    assert (await send.using(unique="until_start").enqueue("bob")).id != first.id
    assert len(await jobs(app)) == 2


async def test_once_it_runs_the_next_call_is_another_job(app, send):
    first = await send.using(unique="until_start").enqueue("ann")
    [claim] = await app.claim()
    second = await send.using(unique="until_start").enqueue("ann")
    assert second.id != first.id
    await claim.complete("ann")


async def test_until_end_is_unique_until_the_job_has_ended(app, send):
    first = await send.using(unique="until_end").enqueue("ann")
    [claim] = await app.claim()
    assert (await send.using(unique="until_end").enqueue("ann")).id == first.id
    await claim.complete("ann")
    assert (await send.using(unique="until_end").enqueue("ann")).id != first.id


async def test_until_end_is_unique_while_the_job_waits_for_its_retry(app, send):
    first = await send.using(unique="until_end").enqueue("ann")
    [claim] = await app.claim()
    await claim.fail("not today", retry_in=60)
    assert (await send.using(unique="until_end").enqueue("ann")).id == first.id


@pytest.mark.parametrize("window", [60, timedelta(minutes=1)])
async def test_a_window_starts_with_the_first_job_and_outlasts_it(clocked, clock, window):
    send = parts_of(clocked).registry.tasks["send"]
    first = await send.using(unique=window).enqueue("ann")
    await work_off(clocked)
    clock.advance(59)
    assert (await send.using(unique=window).enqueue("ann")).id == first.id
    clock.advance(2)
    assert (await send.using(unique=window).enqueue("ann")).id != first.id


async def test_a_key_names_what_is_to_be_one_and_the_first_wins(app, send):
    first = await send.using(unique=60, key="newsletter").enqueue("ann")
    assert (await send.using(unique=60, key="newsletter").enqueue("bob")).id == first.id
    [job] = await jobs(app)
    assert (job.key, job.payload["to"]) == ("newsletter", "ann")


async def test_a_unique_key_of_another_task_is_a_conflict(app, send):
    first = await send.using(unique="until_end", key="k").enqueue("ann")
    with pytest.raises(KeyConflict) as refused:
        await parts_of(app).registry.tasks["other"].using(unique="until_end", key="k").enqueue("ann")
    assert refused.value.job_id == first.id


async def test_a_window_longer_than_keys_are_remembered_is_refused(make_app):
    app = with_tasks(make_app(key_retention="1d"))
    with pytest.raises(InvalidJob, match=r"unique=172800 s is longer than the setting key_retention \(86400 s\)"):
        await parts_of(app).registry.tasks["send"].using(unique=2 * DAY).enqueue("ann")
    assert await jobs(app) == []
    await parts_of(app).registry.tasks["send"].using(unique=DAY).enqueue("ann")


async def test_a_task_may_say_it_for_all_its_jobs(app):
    @app.task(unique="until_end")
    async def report(day: str) -> None: ...

    first = await report.enqueue("monday")
    assert (await report.enqueue("monday")).id == first.id
    assert (await report.using(unique=60).enqueue("monday")).id == first.id
    assert (await app.enqueue("report", "monday")).id == first.id


async def test_many_at_once_and_raw_payloads_are_one_job_too(app, send):
    call = send.using(unique="until_start").call("ann")
    handles = await app.enqueue_many([call, call, (send.using(unique="until_start"), "ann")])
    assert len({handle.id for handle in handles}) == 1
    raw = [await app.submit("import", b"\x00", unique=60) for _ in range(2)]
    assert raw[0].id == raw[1].id


async def test_many_concurrent_calls_are_one_job(app, send):
    handles = await asyncio.gather(*(send.using(unique="until_end").enqueue("ann") for _ in range(50)))
    assert len({handle.id for handle in handles}) == 1


def test_blocking_code_has_it_too(app_url):
    app = with_tasks(Holdfast(app_url))
    with app.sync:
        send = parts_of(app).registry.tasks["send"].sync
        assert send.using(unique="until_start").enqueue("ann").id == send.using(unique="until_start").enqueue("ann").id
        first = send.using(key="k", debounce=60).enqueue("ann")
        assert send.using(key="k", debounce=60).enqueue("bob").id == first.id
        assert first.job().payload["to"] == "bob"


# -- an operator's retry


@pytest.fixture
async def superseded(app, send):
    """A job that died, and the one that has its key since."""
    unique = send.using(unique="until_end", max_attempts=1)
    first = await unique.enqueue("ann")
    await (await app.claim())[0].fail("boom")
    return first, await unique.enqueue("ann")


async def test_a_job_whose_key_belongs_to_an_unfinished_job_cannot_be_retried(app, superseded):
    first, second = superseded
    with pytest.raises(InvalidState, match=f"its key .* now belongs to job '{second.id}'; wait until that job ends"):
        await app.retry(first.id)
    assert len(await app.claim(limit=10)) == 1
    with pytest.raises(InvalidState, match="now belongs to job"):
        await app.retry(first.id)
    assert (await first.job()).state == State.DEAD


async def test_once_that_one_has_ended_it_can(app, superseded):
    first, second = superseded
    await second.cancel()
    assert (await app.retry(first.id)).state == State.QUEUED


async def test_in_bulk_it_is_passed_over_and_that_is_said(app, send, superseded, caplog):
    first, _ = superseded
    other = await send.using(unique="until_end", max_attempts=1, priority=-1).enqueue("bob")
    await (await app.claim())[0].fail("boom")
    assert await app.bulk.retry_dead() == 1
    assert [(await handle.job()).state for handle in (first, other)] == [State.DEAD, State.QUEUED]
    assert f"not retried: job '{first.id}' is dead: its key" in caplog.text


@pytest.mark.parametrize("by", ["ids", "filter"])
async def test_among_many_that_are_changed_it_is_passed_over(app, superseded, by):
    first, _ = superseded
    changed = await (
        app.bulk.change("retry", ids=[first.id]) if by == "ids" else app.bulk.change("retry", Filter(state="dead"))
    )
    assert (changed.changed, changed.skipped) == (0, 1)
    assert (await first.job()).state == State.DEAD


async def test_a_job_that_waits_is_retried_though_another_has_its_key(app, send):
    first = await send.using(unique="until_start").enqueue("ann")
    [claim] = await app.claim()
    await send.using(unique="until_start").enqueue("ann")
    await claim.fail("not today", retry_in=3600)
    assert (await app.retry(first.id)).state == State.QUEUED


# -- replace and debounce


async def test_replace_gives_a_waiting_job_other_arguments_and_another_time(app, send):
    at = datetime.now(UTC) + timedelta(hours=2)
    first = await send.using(key="k", replace=True, delay=3600).enqueue("ann")
    second = await send.using(key="k", replace=True, at=at).enqueue("bob", 2)
    assert second.id == first.id
    [job] = await jobs(app)
    assert job.payload == {"to": "bob", "times": 2}
    assert abs(job.run_at - at) < timedelta(seconds=30)
    assert job.state == State.SCHEDULED
    await send.using(key="k", replace=True).enqueue("cid")
    await work_off(app)
    assert app.ran == [("cid", 1)]
    assert await first.result() == "cid"


async def test_a_job_that_runs_is_not_replaced_but_followed(app, send):
    first = await send.using(key="k", replace=True).enqueue("ann")
    [claim] = await app.claim()
    second = await send.using(key="k", replace=True).enqueue("bob")
    assert second.id != first.id
    await claim.complete()
    await work_off(app)
    assert app.ran == [("bob", 1)]


async def test_a_job_that_waits_for_its_retry_begins_anew(app, send):
    await send.using(key="k", replace=True, max_attempts=2).enqueue("ann")
    [claim] = await app.claim()
    await claim.fail("not today", retry_in=3600)
    replaced = await send.using(key="k", replace=True).enqueue("bob")
    job = await replaced.job()
    assert (job.state, job.attempt, job.reset_count, job.error) == (State.QUEUED, 0, 1, None)
    assert [line.outcome for line in job.history] == ["failed"]
    await work_off(app)
    assert app.ran == [("bob", 1)]


async def test_a_key_of_another_task_is_not_replaced(app, send):
    first = await parts_of(app).registry.tasks["other"].using(key="k", replace=True, delay=60).enqueue("ann")
    with pytest.raises(KeyConflict):
        await send.using(key="k", replace=True).enqueue("bob")
    assert (await first.job()).payload == {"to": "ann"}


async def test_a_job_of_another_limit_key_does_not_take_the_place_of_one_that_waits(app, make_app):
    @app.task(limit=limit(key="customer", concurrency=1))
    async def bill(customer: int, month: str = "may") -> None: ...

    first = await bill.using(key="k", replace=True).enqueue(1)
    for other in (bill.using(key="k", debounce=5), bill.using(key="k", replace=True, limit=limit(concurrency=1))):
        with pytest.raises(
            InvalidJob, match=f"job '{first.id}' with key 'k' was not replaced: it has limit key 'bill/1'"
        ):
            await other.enqueue(2)
    stranger = make_app(parts_of(app).runtime.store.sibling())
    with pytest.raises(InvalidJob, match="the new call has no limit key"):
        await stranger.submit("bill", b'{"customer":2}', json=True, key="k", replace=True)
    assert (await first.job()).payload == {"customer": 1}
    await bill.using(key="k", replace=True, limit=limit(key="customer", concurrency=9)).enqueue(1, "june")
    assert (await first.job()).payload == {"customer": 1, "month": "june"}


async def test_debounce_runs_the_last_call_some_time_after_it(clocked, clock):
    save = parts_of(clocked).registry.tasks["send"].using(key="draft-7", debounce=30)
    for number in range(5):
        await save.enqueue("draft", number)
        clock.advance(20)
        await work_off(clocked)
    assert clocked.ran == []
    clock.advance(10)
    await work_off(clocked)
    assert clocked.ran == [("draft", 4)]
    await save.enqueue("draft", 5)
    clock.advance(30)
    await work_off(clocked)
    assert clocked.ran == [("draft", 4), ("draft", 5)]


async def test_debounce_max_is_when_it_cannot_be_put_off_any_more(clocked, clock):
    save = parts_of(clocked).registry.tasks["send"].using(key="draft-7", debounce=30, debounce_max=50)
    for number in range(3):
        await save.enqueue("draft", number)
        clock.advance(20)
    await work_off(clocked)
    assert clocked.ran == [("draft", 2)]


async def test_many_concurrent_debounced_calls_leave_one_job_with_one_of_their_arguments(app, send):
    calls = [send.using(key="k", debounce=60).enqueue("ann", number) for number in range(16)]
    handles = await asyncio.gather(*calls)
    assert len({handle.id for handle in handles}) == 1
    [job] = await jobs(app)
    assert job.payload["times"] in range(16)
    assert job.state == State.SCHEDULED


async def test_calls_that_race_with_a_worker_are_all_taken_up(app, send):
    # Whatever is replaced was not run, and whatever was run is not replaced: the last arguments always run.
    for number in range(30):
        enqueue = send.using(key="k", replace=True).enqueue("ann", number)
        await asyncio.gather(enqueue, work_off(app))
    await work_off(app)
    assert app.ran[-1] == ("ann", 29)
    assert all(job.state == State.SUCCEEDED for job in await jobs(app))


async def test_hooks_see_the_call_and_may_change_it(app, send):
    async def shout(job, insert):
        return await insert(type(job)(job.id, job.task, job.queue, b'{"to":"LOUD"}', key=job.key, unique=job.unique,
                                      fingerprint=job.fingerprint, delay=job.delay))  # fmt: skip

    app.around_enqueue.append(shout)
    for name in ("ann", "bob"):
        handle = await send.using(key="k", debounce=60).enqueue(name)
    assert (await handle.job()).payload == {"to": "LOUD"}


async def test_it_is_reported(app, send):
    reported = []
    app.on("*", lambda event: reported.append((event.name, getattr(event, "job_id", ""))))
    first = await send.using(key="k", debounce=60).enqueue("ann")
    await send.using(key="k", debounce=60).enqueue("bob")
    await send.using(key="k", unique="until_start").enqueue("cid")
    names = ["job_created", "job_replaced", "idempotent_submission"]
    assert reported == [(name, first.id) for name in names]


async def test_inline_mode_runs_what_was_replaced(app, send):
    async with inline(app):
        handle = await send.using(key="k", replace=True).enqueue("ann")
        assert await handle.result() == "ann"


async def test_many_at_once_cannot_replace(app, send):
    with pytest.raises(InvalidJob, match="enqueue_many does not take replace= or debounce="):
        await app.enqueue_many([send.using(key="k", replace=True).call("ann")])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"unique": "always"}, "unique= must be 'until_start', 'until_end' or a number of seconds"),
        ({"unique": 0}, "unique must be a number of seconds above 0"),
        ({"unique": True}, "unique= must be 'until_start', 'until_end' or a number of seconds, not True"),
        ({"replace": True}, "need key="),
        ({"debounce": 30}, "need key="),
        ({"debounce": 0, "key": "k"}, "debounce must be a number of seconds above 0"),
        ({"debounce": 30, "key": "k", "delay": 5}, "debounce= cannot be used with delay="),
        ({"debounce": 30, "key": "k", "unique": "until_end"}, "debounce= cannot be used with delay="),
        ({"debounce_max": 30, "key": "k"}, "debounce_max= requires debounce="),
        ({"debounce": 30, "debounce_max": 20, "key": "k"}, "shorter than debounce="),
        ({"replace": True, "key": "k", "unique": "until_end"}, "use unique='until_start'"),
        ({"replace": True, "key": "k", "connection": object()}, "cannot be used with connection="),
        ({"expires": 0}, "expires must be a number of seconds above 0"),
        ({"expires": datetime(2030, 1, 1)}, "expires= needs an aware datetime"),  # noqa: DTZ001  # the point
        ({"expires": 5, "delay": 10}, "the job would expire before it is due"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_stored(send, options, says):
    with pytest.raises(InvalidJob, match=says):
        send.using(**options)
