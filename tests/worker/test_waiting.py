"""A job that waits for a signal is suspended, uncharged, and woken by it, also after crashes."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Backoff, Context, InvalidJob, PayloadTooLarge, State
from holdfast.app import parts_of
from holdfast.client import signals
from holdfast.client.signals import SignalMaintenance
from holdfast.core.waiting import Waiting
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working

AT_ONCE = Backoff(base=0, jitter=0)
KINDS = ["async", "thread"]
DAY = 86400
APPROVAL = Waiting("signal", "approval-42")


def waiter(app, kind, name="approval-42", **options):
    ran = []
    if kind == "async":

        @app.task(name=f"wait_for_{name!r:.50}", retry=AT_ONCE, max_attempts=2)
        async def work(ctx: Context) -> object:
            ran.append(ctx.attempt)
            await ctx.step("before", int)
            try:
                return await ctx.wait_for(name, **options)
            except TimeoutError as error:
                return f"TimeoutError: {error}"

    else:

        @app.task(name=f"wait_for_{name!r:.50}", retry=AT_ONCE, max_attempts=2)
        def work(ctx: Context) -> object:
            ran.append(ctx.attempt)
            ctx.step("before", int)
            try:
                return ctx.wait_for(name, **options)
            except TimeoutError as error:
                return f"TimeoutError: {error}"

    return work, ran


@pytest.mark.parametrize("kind", KINDS)
async def test_a_signal_wakes_every_job_that_waits_for_it(app, kind):
    work, ran = waiter(app, kind)
    handles = [await work.enqueue() for _ in range(3)]
    other = await waiter(app, kind, "another")[0].enqueue()
    await work_off(app, concurrency=1)
    jobs = [await handle.job() for handle in handles]
    assert {(job.state, job.waiting_for, job.attempt) for job in jobs} == {(State.BLOCKED, APPROVAL, 0)}
    said = await app.explain(handles[0].id)
    assert said.reason == "it waits for signal 'approval-42'; `holdfast signal approval-42` wakes it"
    assert "1 step is done: before" in said.details
    assert await app.signal("approval-42", {"by": "ann"}) == 3
    assert {(await handle.job()).state for handle in handles} == {State.QUEUED}
    await work_off(app)
    assert [await handle.result(30) for handle in handles] == [{"by": "ann"}] * 3
    assert ran == [1] * 6
    steps = (await handles[0].job()).steps
    assert [(step.kind, step.name, step.result) for step in steps] == [
        ("step", "before", 0),
        ("signal", "approval-42", {"by": "ann"}),
    ]
    assert (await other.job()).state == State.BLOCKED


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"timeout": 0}, {"timeout": 600}])
async def test_a_signal_that_was_sent_first_is_not_missed(app, kind, options):
    work, _ = waiter(app, kind, **options)
    assert await app.signal("approval-42", [1]) == 0
    assert await app.signal("approval-42", [2]) == 0
    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(30) == [2]


async def test_a_signal_wakes_a_worker_that_waits_for_work(app):
    work, _ = waiter(app, "async")
    handle = await work.enqueue()
    async with working(app, poll=30.0):
        await eventually(lambda: _blocked(handle))
        await app.signal("approval-42", "yes")
        assert await handle.result(30) == "yes"


async def _blocked(handle):
    return (await handle.job()).state == State.BLOCKED


@pytest.mark.parametrize("kind", KINDS)
async def test_a_wait_with_a_timeout_ends_in_a_timeout_error_which_is_remembered(clocked, kind):
    app, clock = clocked
    work, _ = waiter(app, kind, timeout=timedelta(hours=1))
    handle = await work.enqueue()
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.waiting_for, job.attempt) == (State.SCHEDULED, APPROVAL, 0)
    until = job.steps[-1].until
    assert job.run_at == until
    said = await app.explain(handle.id)
    assert said.reason.startswith(
        f"it waits for signal 'approval-42', at most until {until.isoformat(' ', 'seconds')}; "
    )
    clock.advance(3601)
    await work_off(app)
    assert await handle.result(30) == "TimeoutError: signal 'approval-42' did not arrive before its timeout"
    assert (await handle.job()).steps[-1].late


async def test_what_had_not_come_in_time_is_waited_for_again_by_a_dead_job_that_is_retried(clocked):
    app, clock = clocked

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> object:
        await ctx.step("before", int)
        return await ctx.wait_for("approval-42", timeout=60)

    handle = await work.enqueue()
    await work_off(app)
    clock.advance(61)
    await work_off(app)
    job = await handle.job()
    assert (job.state, job.error) == (
        State.DEAD,
        "TimeoutError: signal 'approval-42' did not arrive before its timeout",
    )
    await app.retry(handle.id)
    assert [step.name for step in (await handle.job()).steps] == ["before"]
    await work_off(app)
    await app.signal("approval-42", True)
    await work_off(app)
    assert await handle.result(30) is True


async def test_one_signal_at_a_time_is_waited_for_twice_in_one_run_never(app):
    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.wait_for("go")
        await ctx.wait_for("go")

    handle = await work.enqueue()
    await app.signal("go")
    await work_off(app)
    assert "signal 'go' was already used in this run" in (await handle.job()).error


@pytest.mark.parametrize("name", ["", " x", "x" * 129, "a\nb", 7])
async def test_a_name_that_is_none_is_refused(app, name):
    with pytest.raises(InvalidJob, match="a signal name must be 1 to 128 printable characters"):
        await app.signal(name)
    work, _ = waiter(app, "async", name)
    handle = await work.enqueue()
    await work_off(app)
    assert "a signal name must be 1 to 128 printable characters" in (await handle.job()).error


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, "x" * 2000])
async def test_a_value_that_cannot_be_kept_is_refused_and_nothing_is_stored(make_app, value):
    app = make_app(max_payload=1000)
    with pytest.raises((InvalidJob, PayloadTooLarge), match="signal 'go'"):
        await app.signal("go", value)
    assert await parts_of(app).records.all(signals.KIND) == {}


# -- crashes


class Died(BaseException):
    """The process ended here."""


async def test_a_signal_sent_between_a_waiters_look_and_its_parking_is_found_by_its_second_look(app, monkeypatch):
    work, _ = waiter(app, "async")
    handle = await work.enqueue()
    await app.open()
    settle = session_of(app).commit.settle_soon

    def sent_just_before(end, answered):
        async def later():
            await app.signal("approval-42", 7)
            settle(end, answered)

        if end.waiting_for is None:
            settle(end, answered)
        else:
            asyncio.get_running_loop().create_task(later())

    monkeypatch.setattr(session_of(app).commit, "settle_soon", sent_just_before)
    await work_off(app)
    assert await handle.result(30) == 7


async def test_a_job_that_begins_to_wait_while_its_signal_is_sent_does_not_miss_it(app, monkeypatch):
    work, _ = waiter(app, "async")
    handle = await work.enqueue()
    await app.open()
    find = session_of(app).store.find

    async def found_too_soon(where, cursor, limit):
        found = await find(where, cursor, limit)
        if where.waiting_for == APPROVAL:
            monkeypatch.undo()
            await work_off(app)
        return found

    monkeypatch.setattr(session_of(app).store, "find", found_too_soon)
    await app.signal("approval-42", 7)
    await work_off(app)
    assert await handle.result(30) == 7


async def test_a_worker_that_dies_before_its_second_look_leaves_a_job_that_looks_by_itself(clocked, monkeypatch):
    app, clock = clocked
    work, _ = waiter(app, "async", timeout=DAY)
    handle = await work.enqueue()
    await app.signal("approval-42", "early")

    async def dead(*_):
        raise RuntimeError("the worker is gone")

    with monkeypatch.context() as patched:
        patched.setattr(signals, "look_again", dead)
        await work_off(app)
    job = await handle.job()
    assert (job.state, job.waiting_for) == (State.SCHEDULED, APPROVAL)
    assert (job.run_at - job.created_at).total_seconds() <= 61
    clock.advance(61)
    await work_off(app)
    assert await handle.result(30) == "early"


@pytest.mark.parametrize("timeout", [1, 30, 60])
async def test_a_signal_that_was_sent_first_is_found_however_often_its_waiters_worker_dies(
    clocked, monkeypatch, timeout
):
    app, clock = clocked
    work, _ = waiter(app, "async", timeout=timeout)
    await app.signal("approval-42", "early")
    handle = await work.enqueue()

    async def dead(*_):
        raise RuntimeError("the worker is gone")

    with monkeypatch.context() as patched:
        patched.setattr(signals, "look_again", dead)
        for _ in range(3):
            await work_off(app)
            clock.advance(61)
    await work_off(app)
    assert await handle.result(30) == "early"


async def test_a_signal_that_came_in_time_is_not_missed_by_a_job_that_was_busy_until_it_was_late(clocked):
    app, clock = clocked

    @app.task
    async def work(ctx: Context) -> list:
        return await asyncio.gather(ctx.wait_for("a"), ctx.wait_for("b", timeout=60))

    handle = await work.enqueue()
    await work_off(app)
    await app.signal("b", 2)
    clock.advance(600)
    await app.signal("a", 1)
    await work_off(app)
    assert await handle.result(30) == [1, 2]


@pytest.mark.parametrize("dies_at", range(4))
async def test_a_sender_that_dies_at_any_of_its_writes_has_not_sent_or_is_finished_by_maintenance(
    app, monkeypatch, dies_at
):
    work, _ = waiter(app, "async")
    handles = [await work.enqueue() for _ in range(3)]
    await work_off(app)
    writes = []

    def counted(write):
        async def dies(*args):
            if len(writes) == dies_at:
                raise Died
            writes.append(args)
            return await write(*args)

        return dies

    with monkeypatch.context() as patched:
        patched.setattr(session_of(app).store, "put_record", counted(session_of(app).store.put_record))
        patched.setattr(session_of(app).commit, "change", counted(session_of(app).commit.change))
        with pytest.raises(Died):
            await app.signal("approval-42", "unique")
    await SignalMaintenance(session_of(app)).run()
    sent = bool(await parts_of(app).records.all(signals.kind_of("approval-42")))
    assert sent == (dies_at >= 2)
    await work_off(app)
    states = {(await handle.job()).state for handle in handles}
    assert states == ({State.SUCCEEDED} if sent else {State.BLOCKED})
    assert await app.signal("approval-42", "again") == (0 if sent else 3)
    await work_off(app)
    assert {await handle.result(30) for handle in handles} == {"unique" if sent else "again"}


async def test_a_job_that_is_put_to_rest_while_its_signal_is_sent_is_woken_all_the_same(app, monkeypatch):
    work, _ = waiter(app, "async")
    handle = await work.enqueue()
    with monkeypatch.context() as patched:
        patched.setattr(signals, "look_again", lambda *_: asyncio.sleep(0))
        await work_off(app)
    assert (await handle.job()).state == State.SCHEDULED
    find = session_of(app).store.find

    async def moved_after(*args):
        found = await find(*args)
        if found.records and found.records[0].state == State.SCHEDULED:
            seen = found.records[0]
            change = signals._left_in_peace(seen, "approval-42", await parts_of(app).records.now())
            assert await session_of(app).commit.change([change]) == [True]
        return found

    monkeypatch.setattr(session_of(app).store, "find", moved_after)
    assert await app.signal("approval-42", "yes") == 1
    await work_off(app)
    assert await handle.result(30) == "yes"


async def kept(app):
    """The signals that there are, each as often as it is entered; and how many values of each."""
    records = parts_of(app).records
    kinds = [signals.KIND, *(f"{signals.HOURS}:{hour}" for hour in await records.all(signals.HOURS))]
    entered = sorted([name.partition(":")[2] for kind in kinds for name in await records.all(kind)])
    return entered, {name: len(await parts_of(app).records.all(signals.kind_of(name))) for name in ("old", "new")}


async def test_signals_are_forgotten_with_the_keys(clocked):
    app, clock = clocked
    maintenance = SignalMaintenance(session_of(app))
    await app.signal("old", 1)
    await maintenance.run()
    clock.advance(4 * DAY)
    await app.signal("new", 1)
    await maintenance.run()
    clock.advance(4 * DAY)
    await maintenance.run()
    assert await kept(app) == (["new"], {"old": 0, "new": 1})
    await app.signal("new", 2)
    await maintenance.run()
    clock.advance(4 * DAY)
    await maintenance.run()
    assert await kept(app) == (["new"], {"old": 0, "new": 1})
    clock.advance(4 * DAY)
    await maintenance.run()
    assert await kept(app) == ([], {"old": 0, "new": 0})


@pytest.mark.parametrize("back", [0, 8 * DAY], ids=["later", "at the same time by a clock that was put back"])
@pytest.mark.parametrize("call", ["records", "put_record"])
async def test_maintenance_that_is_late_does_not_forget_what_was_sent_again(clocked, monkeypatch, back, call):
    app, clock = clocked
    slow, quick = SignalMaintenance(session_of(app)), SignalMaintenance(session_of(app))
    await app.signal("old", 1)
    for one in (slow, quick):
        await one.run()
    clock.advance(8 * DAY)
    made, late = getattr(session_of(app).store, call), True

    async def another_was_faster(*args):
        nonlocal late
        if late and signals.kind_of("old") in (args[0], *args[0]):  # its entry is read, and found to be past its time
            late = False
            await quick.run()
            clock.jump_wall(-back)
            await app.signal("old", 2)
        return await made(*args)

    monkeypatch.setattr(session_of(app).store, call, another_was_faster)
    await slow.run()
    assert await kept(app) == (["old"], {"old": 1, "new": 0})
    work, _ = waiter(app, "async", "old")
    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(30) == 2


async def test_a_clock_that_is_ahead_forgets_no_signal_that_it_has_just_seen(clocked):
    app, clock = clocked
    await app.config.set("key_retention", DAY)
    maintenance = SignalMaintenance(session_of(app))
    await app.signal("old", 1)
    clock.jump_wall(26 * 3600)
    for _ in range(3):
        await maintenance.run()
        assert await kept(app) == (["old"], {"old": 1, "new": 0})
        clock.advance(1700)
    await maintenance.run()
    assert await kept(app) == ([], {"old": 0, "new": 0})


async def test_what_is_sent_last_counts_though_the_clock_went_back(clocked):
    app, clock = clocked
    await app.signal("old", 1)
    clock.jump_wall(-DAY)
    await app.signal("old", 2)
    work, _ = waiter(app, "async", "old")
    handle = await work.enqueue()
    await work_off(app)
    assert await handle.result(30) == 2


async def test_records_that_nobody_can_read_harm_no_maintenance(clocked):
    app, clock = clocked
    await parts_of(app).records.put(signals.KIND, "odd", b"{}")
    await parts_of(app).records.put(signals.KIND, "7:odd", b"{}")
    await parts_of(app).records.put(signals.kind_of("odd"), "odd", b"7")
    await parts_of(app).records.put(signals.KIND, "7:true", b"{}")
    await parts_of(app).records.put(signals.HOURS, "odd", b"{}")
    await parts_of(app).records.put(signals.HOURS, "0", b"{}")
    await parts_of(app).records.put(f"{signals.HOURS}:0", "strange", b"{}")
    await parts_of(app).records.put(signals.kind_of("true"), "7", b"[")
    maintenance = SignalMaintenance(session_of(app))
    await maintenance.run()
    clock.advance(8 * DAY)
    await maintenance.run()
    assert sorted(await parts_of(app).records.all(signals.KIND)) == ["odd"]
    assert sorted(await parts_of(app).records.all(signals.HOURS)) == ["odd"]
    assert await parts_of(app).records.all(f"{signals.HOURS}:0") == {}


async def test_maintenance_reads_no_signal_that_is_delivered_and_kept(app, monkeypatch):
    for n in range(20):
        await app.signal(f"go-{n}", n)
    read, records = [], session_of(app).store.records

    async def counted(kinds):
        found = await records(kinds)
        read.extend(name for of_kind in found.values() for name in of_kind)
        return found

    monkeypatch.setattr(session_of(app).store, "records", counted)
    await SignalMaintenance(session_of(app)).run()
    assert len(read) <= 2  # the hour, or two


async def test_an_hour_with_many_signals_is_removed_in_steps(clocked, monkeypatch):
    app, clock = clocked
    monkeypatch.setattr(signals, "FORGET_LIMIT", 3)
    maintenance = SignalMaintenance(session_of(app))
    for n in range(7):
        await app.signal(f"go-{n}", n)
    await maintenance.run()
    clock.advance(8 * DAY)
    for left in (4, 1, 0):
        await maintenance.run()
        assert len((await kept(app))[0]) == left
    assert await parts_of(app).records.all(signals.HOURS) == {}


async def test_a_thousand_waiters_are_woken_in_pages(app, monkeypatch):
    monkeypatch.setattr(signals, "PAGE", 100)
    work, _ = waiter(app, "async")
    handles = await app.enqueue_many([(work,)] * 250)
    await work_off(app, concurrency=50)
    assert await app.signal("approval-42", 1) == 250
    await work_off(app, concurrency=50)
    assert (await app.stats()).counts[State.SUCCEEDED] == len(handles)
