"""Schedules when something is in the way: full queues, refused jobs, other services, other hands, a wrong clock."""

import logging
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast import ConfigError, InvalidJob, limit
from holdfast.app import parts_of
from holdfast.core.errors import ScheduleNotFound
from holdfast.schedules.service import KIND
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.views import LimitInfo

HOUR, DAY = 3600, 86400


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(make_app, clock):
    """An app whose time stands still, with room for two jobs in a queue."""
    app = make_app(MemoryStore(clock), clock=clock, max_depth=2)

    @app.task
    async def report(day: str = "today") -> str:
        return day

    return app


async def runs_of(app):
    """The times at which the runs were due that were made, oldest first."""
    keys = [job.key for job in (await app.jobs(limit=1000)).jobs]
    return sorted(int(key.rpartition("/")[2]) for key in keys if key is not None)


async def test_a_run_that_finds_its_queue_full_is_made_once_there_is_room(app, clock, caplog):
    await app.schedules.put("hourly", "report", every=HOUR)
    others = [await app.enqueue("report"), await app.enqueue("report")]
    clock.advance(HOUR)
    for _ in range(3):
        assert await app.schedules.make_due_runs() is None, "it is for the next look, whenever that is"
    waiting = await app.schedules.get("hourly")
    assert (waiting.last_run, waiting.last_job) == (None, None)
    assert "queue 'default' is full: it has at least 2 waiting jobs" in waiting.error
    assert caplog.text.count("a run could not be enqueued and will be tried again: QueueFull") == 1
    await app.cancel(others[0].id)
    await app.schedules.make_due_runs()
    kept = await app.schedules.get("hourly")
    assert await runs_of(app) == [waiting.next] == [kept.last]
    assert (await app.job(kept.last_job)).key == f"schedule/hourly/{waiting.next}"
    assert kept.error is None


async def test_of_missed_runs_those_that_found_room_are_not_made_again(app, clock):
    first = (await app.schedules.put("hourly", "report", every=HOUR, catch_up=10)).next
    clock.advance(4 * HOUR)
    await app.schedules.make_due_runs()
    kept = await app.schedules.get("hourly")
    assert [kept.last, kept.next] == [first + HOUR * 1_000_000, first + 2 * HOUR * 1_000_000]
    for job in (await app.jobs()).jobs:
        await app.cancel(job.id)
        await app.delete(job.id)
    await app.schedules.make_due_runs()
    assert await runs_of(app) == [first + hours * HOUR * 1_000_000 for hours in (2, 3)]


async def test_a_full_queue_is_no_leave_to_make_up_for_more_than_was_asked(app, clock):
    kept = await app.schedules.put("hourly", "report", every=HOUR, catch_up=0)
    others = [await app.enqueue("report"), await app.enqueue("report")]
    clock.advance((kept.next - clock.now()) / 1_000_000)
    await app.schedules.make_due_runs()
    clock.advance(600)
    await app.schedules.make_due_runs()
    await app.cancel(others[0].id)
    await app.schedules.make_due_runs()
    assert await runs_of(app) == []
    assert "has at least 2 waiting jobs" in (await app.schedules.get("hourly")).error


async def test_a_run_that_is_refused_for_good_is_reported_and_the_next_one_has_its_own_chance(app, clock, caplog):
    await app.schedules.put("hourly", app.call("report", day="x" * 2000), every=HOUR)
    await app.config.set("max_payload", 1024)
    clock.advance(HOUR)
    assert 0 < await app.schedules.make_due_runs() <= HOUR
    kept = await app.schedules.get("hourly")
    assert (kept.last_run, kept.last_job) == (None, None)
    assert "PayloadTooLarge: task 'report'" in kept.error
    assert kept.next > clock.now()
    clock.advance(HOUR)
    await app.schedules.make_due_runs()
    assert caplog.text.count("a run could not be enqueued and was skipped; correct the schedule") == 1
    await app.config.unset("max_payload")
    clock.advance(HOUR)
    await app.schedules.make_due_runs()
    kept = await app.schedules.get("hourly")
    assert await runs_of(app) == [kept.last]
    assert kept.error is None


async def test_what_a_hook_raises_is_reported_and_harms_no_other(app, clock, caplog):
    async def refusing(job, insert):
        if job.meta["schedule"] == "a":
            raise KeyError("the hook has a bug")
        return await insert(job)

    app.around_enqueue.append(refusing)
    for name in ("a", "b"):
        await app.schedules.put(name, "report", every=HOUR)
    clock.advance(HOUR)
    with caplog.at_level(logging.WARNING):
        await app.schedules.make_due_runs()
        await app.schedules.make_due_runs()
    assert [kept.error for kept in await app.schedules.list()] == ["KeyError: 'the hook has a bug'", None]
    assert caplog.text.count("Traceback") == 1
    app.around_enqueue.clear()
    await app.schedules.make_due_runs()
    assert len(await runs_of(app)) == 2


async def test_a_change_by_hand_takes_the_trouble_away_and_a_deploy_of_the_same_does_not(app, clock):
    await app.schedules.put("hourly", "report", every=HOUR)
    await app.enqueue("report")
    await app.enqueue("report")
    clock.advance(HOUR)
    await app.schedules.make_due_runs()
    assert (await app.schedules.put("hourly", "report", every=HOUR)).error is not None
    assert (await app.schedules.put("hourly", app.call("report", day="monday"), every=HOUR)).error is None


@pytest.mark.parametrize("by", ["the task", "the queue"])
async def test_a_service_that_does_not_know_the_task_makes_its_runs_in_its_limit_key(app, make_app, clock, by):
    alone = limit(name="api", concurrency=1)
    owner = make_app(
        parts_of(app).runtime.store.sibling(),
        clock=clock,
        queue_limits={"default": alone} if by == "the queue" else None,
    )
    stranger = make_app(parts_of(app).runtime.store.sibling(), clock=clock)
    owner.task(name="sync", limit=alone if by == "the task" else None)(lambda: None)
    await owner.schedules.put("s", "sync", every=HOUR)
    clock.advance(HOUR)
    await stranger.schedules.make_due_runs()
    await stranger.schedules.run_now("s")
    assert [job.limits for job in (await owner.jobs()).jobs] == [(LimitInfo("@api", None),)] * 2
    assert len(await owner.claim(limit=10)) == 1
    await stranger.schedules.put("s", "sync", every=60)
    assert (await owner.schedules.get("s")).limit_key.name == "@api", "a change of the rule alone"


async def test_what_knows_the_task_finds_the_limit_key_anew_at_every_run(app, make_app, clock):
    stranger = make_app(parts_of(app).runtime.store.sibling(), clock=clock)
    await stranger.schedules.put("s", "sync", every=HOUR)
    await stranger.schedules.put("command", stranger.call("shell", command="true"), every=HOUR)
    for bound in (1, 2, None):
        deployed = make_app(parts_of(app).runtime.store.sibling(), clock=clock)
        deployed.task(name="sync", limit=None if bound is None else limit(concurrency=bound))(lambda: None)
        clock.advance(HOUR)
        await deployed.schedules.make_due_runs()
        limit_key = (await stranger.schedules.get("s")).limit_key
        assert (None if limit_key is None else limit_key.concurrency) == bound
    assert (await app.schedules.get("command")).last_job is not None


async def test_a_run_in_the_making_does_not_overwrite_what_was_deleted_and_made_anew(make_app):
    app, met = make_app(), []
    app.task(name="old")(lambda: None)
    app.task(name="new")(lambda: None)

    async def replaced(job, insert):
        inserted = await insert(job)
        if not met:
            met.append(job)
            await app.schedules.delete("s")
            await app.schedules.put("s", "new", cron="0 3 * * *")
        return inserted

    await app.schedules.put("s", "old", every=0.001)
    app.around_enqueue.append(replaced)
    while not met:  # it is due within a millisecond
        await app.schedules.make_due_runs()
    kept = await app.schedules.get("s")
    assert (kept.task, kept.rule.cron, kept.last_job) == ("new", "0 3 * * *", None)


async def test_a_run_in_the_making_does_not_bring_back_what_was_deleted(app, clock):
    async def deleted(job, insert):
        await app.schedules.delete("s")
        return await insert(job)

    await app.schedules.put("s", "report", every=HOUR)
    app.around_enqueue.append(deleted)
    clock.advance(HOUR)
    await app.schedules.make_due_runs()
    assert await app.schedules.list() == []


async def test_a_deleted_schedule_leaves_nothing_behind(app, clock):
    await app.schedules.put("s", "report", every=HOUR)
    await app.schedules.delete("s")
    assert await parts_of(app).records.all(KIND) == {}
    with pytest.raises(ScheduleNotFound):
        await app.schedules.delete("s")


async def test_a_clock_that_is_ahead_does_not_let_a_deleted_schedule_come_back(make_app, clock):
    right = make_app(MemoryStore(clock), clock=clock)
    for name in ("old", "new"):
        right.task(name=name)(lambda: None)
    await right.schedules.put("s", "old", every=HOUR)
    [(seen, version)] = await right.schedules._all()  # as by a worker that is about to make a run, and stops
    await right.schedules.delete("s")
    clock.jump_wall(26 * HOUR)
    await right.schedules.make_due_runs()
    clock.jump_wall(-26 * HOUR)
    await right.schedules.put("s", "new", every=HOUR)
    assert not await parts_of(right).records.put(KIND, "s", msgspec.json.encode(seen), version)
    assert (await right.schedules.get("s")).task == "new"


async def test_one_that_is_made_anew_has_nothing_of_the_deleted_one(app, clock):
    await app.schedules.put("s", "report", every=HOUR)
    await app.schedules.pause("s")
    await app.schedules.delete("s")
    assert not (await app.schedules.put("s", "report", every=HOUR)).paused


@pytest.mark.parametrize("rule", [{"cron": "0 * * * *"}, {"every": HOUR}], ids=str)
async def test_a_clock_that_was_ahead_and_is_right_again_silences_nothing(app, clock, rule):
    await app.schedules.put("hourly", "report", **rule)
    clock.jump_wall(30 * DAY)
    await app.schedules.make_due_runs()
    clock.jump_wall(-30 * DAY)
    assert await app.schedules.make_due_runs() <= HOUR
    made = len(await runs_of(app))
    clock.advance(HOUR)
    await app.schedules.make_due_runs()
    kept = await app.schedules.get("hourly")
    assert clock.now() - HOUR * 1_000_000 < kept.last <= clock.now() < kept.next <= clock.now() + HOUR * 1_000_000
    assert len(await runs_of(app)) == made + 1


async def test_a_clock_that_goes_back_a_little_makes_no_run_twice(app, clock):
    first = (await app.schedules.put("hourly", "report", every=HOUR)).next
    clock.advance((first - clock.now()) / 1_000_000 + 1)
    await app.schedules.make_due_runs()
    moved = await app.schedules.get("hourly")
    clock.jump_wall(-5)
    await app.schedules.make_due_runs()
    assert await app.schedules.get("hourly") == moved


@pytest.mark.parametrize(
    "given",
    [
        {"catch_up": 1.5},
        {"catch_up": True},
        {"catch_up": "all"},
        {"tz": "No/Where"},
        {"tz": None},
        {"tz": ["UTC"]},
        {"every": None, "cron": 5},
        {"every": None, "cron": ["* * * * *"]},
        {"overlap": ["skip"]},
    ],
    ids=str,
)
async def test_what_could_not_be_read_again_is_refused_before_it_is_stored(app, given):
    with pytest.raises(InvalidJob):
        await app.schedules.put("s", "report", **{"every": 60, **given})
    assert await parts_of(app).records.all(KIND) == {}
    with pytest.raises((InvalidJob, ConfigError)):
        app.cron(given.get("cron"), **{"every": 60, **{word: value for word, value in given.items() if word != "cron"}})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delay": 60}, "delay="),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC)}, "at="),
        ({"key": "k"}, "key="),
        ({"id": "x"}, "id="),
        ({"unique": "until_end"}, "unique="),
        ({"unique": 60}, "unique="),
        ({"meta": {"a": 1}}, "meta="),
        ({"key": "k", "debounce": 5, "debounce_max": 9}, "debounce_max=, delay=, key=, replace=, unique="),
        ({"expires": datetime(2030, 1, 1, tzinfo=UTC)}, "expires="),
        ({"limit": limit(concurrency=1)}, "limit="),
    ],
    ids=str,
)
async def test_what_a_schedule_does_not_keep_of_a_call_is_refused(app, given, words):
    with pytest.raises(InvalidJob, match=f"schedule 's' was not stored: a schedule cannot have {words}"):
        await app.schedules.put("s", parts_of(app).registry.tasks["report"].using(**given).call(), every=60)
    assert await app.schedules.list() == []
