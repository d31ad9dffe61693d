"""Schedules: each due run is enqueued exactly once, by the first process that looks."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import HoldfastError, InvalidJob, State, limit
from holdfast.app import parts_of
from holdfast.core.errors import ScheduleNotFound
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.workers import working


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(make_app, clock):
    """An app whose time stands still."""
    app = make_app(MemoryStore(clock), clock=clock)

    @app.task(queue="reports", max_attempts=2, timeout=9)
    async def report(day: str = "today") -> str:
        return day

    return app


async def jobs_of(app):
    return sorted((await app.jobs(limit=1000)).jobs, key=lambda job: job.created_at)


async def test_nothing_is_made_before_its_time(app, clock):
    await app.schedules.put("daily", "report", every=60)
    assert await app.schedules.make_due_runs() <= 60
    assert await jobs_of(app) == []


async def test_a_look_asks_no_calendar_while_nothing_is_due(app, clock, monkeypatch):
    for number in range(24):
        await app.schedules.put(f"daily-{number}", "report", cron=f"30 {number} * * *", tz="Europe/Oslo")
    asked = []
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.core.cron.checked", asked.append)
        patch.setattr("holdfast.core.cron.next_after", lambda *rest: asked.append(rest))
        assert await app.schedules.make_due_runs() <= 3600
    assert asked == []
    clock.advance(3600)
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 1


async def test_a_run_is_the_job_that_the_call_says(app, clock):
    task = parts_of(app).registry.tasks["report"]
    kept = await app.schedules.put("daily", task.using(priority=-3, tags=["cron"]).call(day="monday"), every=60)
    clock.advance(60)
    await app.schedules.make_due_runs()
    [job] = await jobs_of(app)
    assert (job.task, job.queue, job.priority, job.tags) == ("report", "reports", -3, ("cron",))
    assert (job.payload, job.max_attempts, job.timeout) == ({"day": "monday"}, 2, 9)
    assert job.meta["schedule"] == "daily"
    assert kept.next_run.timestamp() * 1_000_000 == kept.next


async def test_looking_again_makes_nothing_again(app, clock):
    await app.schedules.put("daily", "report", every=60)
    clock.advance(60)
    for _ in range(3):
        await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 1


async def test_many_who_look_at_once_make_one_run(app, make_app, clock):
    others = [make_app(parts_of(app).runtime.store.sibling(), clock=clock) for _ in range(8)]
    await app.schedules.put("daily", "report", every=60)
    for count in range(1, 6):
        clock.advance(60)
        await asyncio.gather(*(other.schedules.make_due_runs() for other in others))
        assert len(await jobs_of(app)) == count


async def test_a_crash_between_the_run_and_the_next_time_makes_nothing_twice(app, clock, monkeypatch):
    await app.schedules.put("daily", "report", every=60)
    clock.advance(60)

    async def crash(*_: object) -> bool:
        raise HoldfastError("the process died here")

    with monkeypatch.context() as patch:
        patch.setattr(parts_of(app).records, "put", crash)
        with pytest.raises(HoldfastError, match="died here"):
            await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 1
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 1
    clock.advance(60)
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 2


@pytest.mark.parametrize(("catch_up", "made"), [(0, 0), (1, 1), (4, 4)])
async def test_what_was_missed_is_made_up_for_as_it_says(app, clock, catch_up, made):
    kept = await app.schedules.put("daily", "report", every=600, catch_up=catch_up)
    clock.advance((kept.next - clock.now()) / 1_000_000 + 10 * 600 - 300)
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == made


async def test_a_run_is_put_off_by_its_jitter(app, clock):
    await app.schedules.put("daily", "report", every=3600, jitter=600)
    clock.advance(3600)
    await app.schedules.make_due_runs()
    [job] = await jobs_of(app)
    assert job.state == State.SCHEDULED
    assert timedelta(0) < job.run_at - job.created_at <= timedelta(seconds=600)


async def test_overlap_skip_makes_no_run_while_the_last_one_is_unfinished(app, clock):
    await app.schedules.put("daily", "report", every=60, overlap="skip")
    for _ in range(3):
        clock.advance(60)
        await app.schedules.make_due_runs()
    [first] = await jobs_of(app)
    await app.cancel(first.id)
    clock.advance(60)
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 2


async def test_a_schedule_makes_no_run_before_its_start_and_after_its_end(app, clock):
    begin = clock.now() / 1e6
    begin += 60 - begin % 60
    kept = await app.schedules.put("short", "report", every=60, start=begin + 600, end=begin + 720, catch_up=9)
    assert kept.next_run == kept.start == datetime.fromtimestamp(begin + 600, UTC)
    assert kept.end == kept.start + timedelta(minutes=2)
    assert 540 < await app.schedules.make_due_runs() <= 660
    for _ in range(30):
        clock.advance(60)
        await app.schedules.make_due_runs()
    assert [job.key for job in await jobs_of(app)] == [
        f"schedule/short/{int(begin + seconds) * 1_000_000}" for seconds in (600, 660, 720)
    ]
    kept = await app.schedules.get("short")
    assert kept.next_run is None
    assert await app.schedules.put("short", "report", every=60, end=kept.end) is not None  # it is over, not refused
    with pytest.raises(InvalidJob, match="from start= to end="):
        await app.schedules.put("never", "report", every=60, start=begin, end=begin - 1)
    with pytest.raises(InvalidJob, match="start= needs an aware datetime"):
        await app.schedules.put("never", "report", every=60, start=datetime(2030, 1, 1))  # noqa: DTZ001


async def test_a_paused_schedule_makes_nothing_and_does_not_make_up_for_it(app, clock):
    await app.schedules.put("daily", "report", every=60, catch_up=100)
    assert (await app.schedules.pause("daily")).next_run is None
    clock.advance(600)
    assert await app.schedules.make_due_runs() is None
    await app.schedules.resume("daily")
    await app.schedules.make_due_runs()
    assert await jobs_of(app) == []
    clock.advance(60)
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 1


async def test_it_can_be_run_at_once_beside_its_usual_runs(app, clock):
    await app.schedules.put("daily", "report", every=60)
    handle = await app.schedules.run_now("daily")
    assert (await handle.job()).queue == "reports"
    clock.advance(60)
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 2


async def test_a_changed_rule_counts_from_now_and_the_same_one_goes_on(app, clock):
    before = await app.schedules.put("daily", "report", every=60)
    clock.advance(30)
    assert await app.schedules.put("daily", "report", every=60) == before
    changed = await app.schedules.put("daily", "report", cron="0 3 * * *", tz="Europe/Oslo")
    assert changed.next != before.next
    assert len(await app.schedules.list()) == 1


async def test_changed_arguments_keep_the_next_time(app, clock):
    before = await app.schedules.put("daily", "report", every=60)
    clock.advance(30)
    after = await app.schedules.put("daily", app.call("report", day="monday"), every=60)
    assert after.next == before.next
    clock.advance(30)
    await app.schedules.make_due_runs()
    assert [job.payload for job in await jobs_of(app)] == [{"day": "monday"}]


async def test_what_is_deleted_makes_no_more_runs(app, clock):
    await app.schedules.put("daily", "report", every=60)
    await app.schedules.delete("daily")
    clock.advance(60)
    assert await app.schedules.make_due_runs() is None
    assert await app.schedules.list() == []
    for call in (app.schedules.get, app.schedules.delete, app.schedules.pause, app.schedules.run_now):
        with pytest.raises(ScheduleNotFound, match="no schedule 'daily' in this store"):
            await call("daily")


async def test_bad_schedules_are_refused_before_anything_is_stored(app):
    for wrong in (
        {"cron": "61 * * * *"},
        {"every": 0},
        {"every": -5},
        {},
        {"cron": "* * * * *", "every": 5},
        {"cron": "* * * * *", "tz": "Nowhere"},
        {"every": 60, "overlap": "sometimes"},
        {"every": 60, "tz": "Europe/Oslo"},
        {"every": 60, "catch_up": 10**6},
    ):
        with pytest.raises(InvalidJob):
            await app.schedules.put("daily", "report", **wrong)
    with pytest.raises(InvalidJob, match="wrong"):
        await app.schedules.put("daily", app.call("report", wrong=1), every=60)
    with pytest.raises(InvalidJob):
        await app.schedules.put("a\x00b", "report", every=60)
    assert await app.schedules.list() == []


async def test_an_unknown_option_is_refused_with_the_closest_one(app):
    with pytest.raises(TypeError, match=r"unknown option 'overlaps'; did you mean 'overlap'\?"):
        await app.schedules.put("a", "noop", every=60, overlaps="skip")
    with pytest.raises(TypeError, match=r"unknown option 'queue'; known options: every, tz, catch_up"):
        app.cron("* * * * *", queue="mail")
    assert await app.schedules.list() == []


async def test_a_record_that_cannot_be_read_harms_no_other(app, clock):
    await app.schedules.put("daily", "report", every=60)
    await parts_of(app).records.put("schedule", "a", b"[1, 2")
    await parts_of(app).records.put(
        "schedule", "b", b'{"name": "b", "task": "report", "rule": {"every": 1e-9}, "next": 1}'
    )
    await parts_of(app).records.put(
        "schedule", "c", b'{"name": "c", "task": "report", "rule": {"every": 1}, "next": -9e99}'
    )
    beyond = b'{"name": "d", "task": "report", "rule": {"every": 3600}, "next": 1, "priority": 99999999}'
    await parts_of(app).records.put("schedule", "d", beyond)
    clock.advance(60)
    await app.schedules.make_due_runs()
    assert len(await jobs_of(app)) == 1


async def test_a_worker_makes_what_the_code_declares(make_app):
    app, ran = make_app(), []

    @app.cron(every=timedelta(seconds=0.1), name="often")
    @app.task
    async def tick() -> None:
        ran.append(datetime.now(UTC))

    async with working(app):
        await eventually(lambda: len(ran) >= 3)
    [kept] = await app.schedules.list()
    assert (kept.name, kept.task, kept.in_code, kept.words) == ("often", "tick", True, "Every 0.1 seconds")
    keys = [job.key for job in (await app.jobs(limit=1000)).jobs]
    assert len(set(keys)) == len(keys) >= 3


async def test_a_plain_function_is_made_a_task(make_app):
    app = make_app()

    @app.cron("*/5 * * * *", tz="Europe/Oslo")
    async def tick() -> None: ...

    assert list(parts_of(app).schedules.declared) == ["tick"]
    assert "tick" in parts_of(app).registry.tasks
    with pytest.raises(InvalidJob, match="invalid cron line"):
        app.cron("every now and then")


async def test_what_cannot_be_declared_is_refused_where_it_is_declared(app):
    with pytest.raises(InvalidJob, match=r"schedule 'needs'.*argument.*args=…"):

        @app.cron(every=60)
        async def needs(day: str) -> None: ...

    @app.cron("0 3 * * *")
    @app.cron("0 4 * * *", name="later")
    async def nightly() -> None: ...

    assert set(parts_of(app).schedules.declared) == {"nightly", "later"}
    with pytest.raises(InvalidJob, match=r"schedule 'later' is declared twice.*name="):
        app.cron(every=60, name="later")(nightly)


async def test_a_declared_schedule_may_have_arguments(make_app):
    app, seen = make_app(), []

    @app.cron(every=timedelta(seconds=0.1), args=[1], kwargs={"word": "a"})
    def note(n: int, word: str) -> None:
        seen.append((n, word))

    async with working(app, poll=0.05):
        await eventually(lambda: seen)
    assert set(seen) == {(1, "a")}
    with pytest.raises(InvalidJob, match="is declared twice"):
        app.cron(every=timedelta(seconds=0.1), args=[2], kwargs={"word": "a"})(note)
    with pytest.raises(InvalidJob, match=r"pass its arguments as @app.cron\(…, args=…, kwargs=…\)"):
        app.cron(every=60, name="other")(note)


async def test_one_that_cannot_be_kept_harms_no_other(app, caplog):
    for name, rule in (("a", None), ("b", limit(key=lambda: 1 / 0)), ("c", None)):
        app.cron(every=60)(app.task(name=name, limit=rule)(lambda: None))
    await app.open()
    await app.schedules.declare()
    assert [kept.name for kept in await app.schedules.list()] == ["a", "c"]
    assert "schedule b declared in code was rejected" in caplog.text


async def test_what_the_code_says_otherwise_counts_but_not_against_an_operators_pause(make_app, clock):
    store = MemoryStore(clock)

    def deployed(seconds: float):
        app = make_app(store.sibling(), clock=clock)
        app.cron(every=seconds)(app.task(name="tick")(lambda: None))
        return app

    first = deployed(60)
    await first.open()
    await first.schedules.declare()
    await first.schedules.pause("tick")
    second = deployed(30)
    await second.open()
    await second.schedules.declare()
    [kept] = await second.schedules.list()
    assert (kept.rule.every, kept.paused) == (30, True)


def test_blocking_code_has_the_same(app_url, tmp_path):
    from holdfast import Holdfast

    app = Holdfast(app_url)
    app.task(name="report")(lambda: None)
    with app.sync as blocking:
        kept = blocking.schedules.put("daily", "report", cron="@daily")
        assert blocking.schedules.get("daily") == kept
        assert blocking.schedules.pause("daily").paused
        assert not blocking.schedules.resume("daily").paused
        assert blocking.schedules.run_now("daily").id
        blocking.schedules.delete("daily")
        assert blocking.schedules.list() == []
