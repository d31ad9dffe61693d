"""Pausing tasks: all jobs of one, or those with certain arguments. The others go on."""

import asyncio
import math

import msgspec
import pytest

from holdfast import InvalidJob, InvalidState, State, StoreUnavailable
from holdfast.app import parts_of
from holdfast.client.pauses import KIND, Pause
from holdfast.core.waiting import Waiting
from holdfast.store.protocol import records_of
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.inside import session_of
from support.sizes import size
from support.workers import work_off, working


def with_tasks(app):
    ran = app.ran = []

    @app.task
    async def send(to: str, customer: int | str | bool | None = None) -> None:
        ran.append((to, customer))

    @app.task
    async def other(to: str) -> None:
        ran.append(to)

    return app


@pytest.fixture
def app(make_app):
    return with_tasks(make_app(poll=0.02))


@pytest.fixture
def send(app):
    return parts_of(app).registry.tasks["send"]


@pytest.fixture
def other(app):
    return parts_of(app).registry.tasks["other"]


async def states(*handles):
    return [(await handle.job()).state for handle in handles]


async def test_jobs_of_a_paused_task_are_deferred_and_the_others_run(app, send, other):
    await app.pause(task="send")
    held, free = await send.enqueue("ann"), await other.enqueue("bob")
    await work_off(app, concurrency=1)
    assert await states(held, free) == [State.BLOCKED, State.SUCCEEDED]
    job = await held.job()
    assert (job.waiting_for, job.attempt, job.error) == (Waiting("pause", "send"), 0, None)
    assert [(line.number, line.outcome) for line in job.history] == [(1, "paused")]
    assert app.ran == ["bob"]
    await app.resume(task="send")
    assert await states(held) == [State.QUEUED]
    await work_off(app)
    assert await states(held) == [State.SUCCEEDED]
    assert (await held.job()).attempt == 1


async def test_a_deferred_job_whose_arguments_are_edited_runs_unless_the_pause_covers_them(app, send):
    await app.pause(task="send", where={"customer": 42})
    edited, moved, still = [await send.enqueue(name, 42) for name in "abc"]
    await work_off(app)
    await edited.edit(args=["a", 43])
    assert (await moved.edit(priority=3)).state == State.BLOCKED
    await still.edit(args=["d", 42])
    await work_off(app)
    assert await states(edited, moved, still) == [State.SUCCEEDED, State.BLOCKED, State.BLOCKED]
    assert app.ran == [("a", 43)]


async def test_only_jobs_with_the_argument_are_paused(app, send):
    await app.pause(task="send", where={"customer": 42})
    held, free, none = await send.enqueue("a", 42), await send.enqueue("b", 43), await send.enqueue("c")
    await work_off(app)
    assert await states(held, free, none) == [State.BLOCKED, State.SUCCEEDED, State.SUCCEEDED]
    assert [(one.task, one.where) for one in await app.bulk.paused_tasks()] == [("send", {"customer": 42})]
    await app.resume(task="send", where={"customer": 42})
    await work_off(app)
    assert await states(held) == [State.SUCCEEDED]
    assert await app.bulk.paused_tasks() == []


@pytest.mark.parametrize(
    ("wanted", "others"), [(42, [43, "42", True]), ("a b", ["a", ""]), (True, [1, "true"]), (None, [0, "", False])]
)
async def test_values_are_compared_as_json_has_them(app, send, wanted, others):
    await app.pause(task="send", where={"customer": wanted})
    held, free = await send.enqueue("x", wanted), [await send.enqueue("x", value) for value in others]
    await work_off(app)
    assert await states(held) == [State.BLOCKED]
    assert set(await states(*free)) == {State.SUCCEEDED}


async def test_all_the_arguments_must_match(app, send):
    await app.pause(task="send", where={"to": "ann", "customer": 42})
    held, free = await send.enqueue("ann", 42), await send.enqueue("bob", 42)
    await work_off(app)
    assert await states(held, free) == [State.BLOCKED, State.SUCCEEDED]


async def test_raw_payloads_are_paused_with_their_task_but_have_no_arguments(app):
    await app.pause(task="import", where={"customer": 42})
    await app.submit("import", b"\x00customer=42")
    [claim] = await app.claim()
    await claim.release()
    await app.pause(task="import")
    assert await app.claim() == []


async def test_a_job_with_two_pauses_waits_until_both_are_over(app, send):
    await app.pause(task="send")
    await app.pause(task="send", where={"customer": 42})
    held = await send.enqueue("ann", 42)
    await work_off(app)
    for where in (None, {"customer": 42}):
        assert await states(held) == [State.BLOCKED]
        await app.resume(task="send", where=where)
        await work_off(app)
    assert await states(held) == [State.SUCCEEDED]


async def test_a_running_worker_sees_the_pause(app, make_app, send):
    operator = (
        make_app(parts_of(app).runtime.store.sibling())
        if parts_of(app).url == "memory://"
        else make_app(parts_of(app).url)
    )
    async with working(app):
        await (await send.enqueue("ann")).wait(90)
        await operator.pause(task="send")
        await eventually(lambda: session_of(app).task_pauses._by_task)
        held = await send.enqueue("bob")

        async def aside():
            return (await held.job()).state == State.BLOCKED

        await eventually(aside)
        await operator.resume(task="send")
        await held.wait(90)
    assert app.ran == [("ann", None), ("bob", None)]


async def test_what_runs_goes_on(app):
    go, started = asyncio.Event(), asyncio.Event()

    @app.task
    async def long() -> str:
        started.set()
        await go.wait()
        return "done"

    async with working(app):
        handle = await long.enqueue()
        await started.wait()
        await app.pause(task="long")
        go.set()
        assert await handle.result(30) == "done"


async def test_a_worker_that_missed_the_end_of_a_pause_does_not_defer_a_job(app, send):
    await app.pause(task="send")
    held = await send.enqueue("ann")
    # As by a worker that read its pauses before they were lifted.
    stale = session_of(app).task_pauses._by_task
    await app.resume(task="send")
    session_of(app).task_pauses._by_task = stale
    session_of(app).task_pauses._read_at = math.inf  # however slow this test is, it does not read them again
    [claim] = await app.claim()
    assert claim.job.id == held.id
    assert [line.outcome for line in claim.job.history] == ["released"]


async def test_a_read_that_failed_for_one_job_confirms_no_pause_for_the_next(app, send, monkeypatch):
    await app.pause(task="send")
    pauses, store = session_of(app).task_pauses, session_of(app).store
    jobs = [await parts_of(app).handles.record((await send.enqueue(name)).id) for name in ("ann", "bob", "eve")]
    paused = await records_of(store, KIND)
    answers = [paused, StoreUnavailable("the store is away"), {}]  # it is lifted and forgotten after the first read

    async def one_by_one(kinds):
        await asyncio.sleep(0)  # so that the others ask while the first read is on its way
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(kinds, answer)

    monkeypatch.setattr(store, "records", one_by_one)
    outcomes = await asyncio.gather(*(pauses.confirm(job) for job in jobs))
    assert [outcome.kind for outcome in outcomes] == ["paused", "released", "released"]


async def test_what_a_killed_operator_left_is_freed_by_any_worker(app, send):
    await app.pause(task="send")
    held = await send.enqueue("ann")
    await work_off(app)
    # As by a process that died after the mark, before the first page.
    over = Pause("send", resumed_at=await parts_of(app).records.now())
    await parts_of(app).records.put(KIND, "send", msgspec.json.encode(over))
    async with working(app):
        await held.wait(90)
    assert await states(held) == [State.SUCCEEDED]


async def test_records_that_cannot_be_read_harm_nobody(app, send):
    for name, value in (("x", b'"?"'), ("y", b'{"task": "send"}'), ("send", b'{"task": 5}')):
        await parts_of(app).records.put(KIND, name, value)
    handle = await send.enqueue("ann")
    await work_off(app)
    assert await states(handle) == [State.SUCCEEDED]
    assert await app.bulk.paused_tasks() == []


class Between(MemoryStore):
    """Lets a test do something between the read of a pause and the write of what follows from it."""

    act = None

    async def records(self, kinds):
        found = await super().records(kinds)
        if KIND in kinds and self.act is not None:
            act, self.act = self.act, None
            await act()
        return found


async def look(app):
    """What the maintenance of a worker does about pauses."""
    await session_of(app).task_pauses.refresh()
    await session_of(app).task_pauses.release_late()


@pytest.mark.parametrize("off", [-61 * 60, 61 * 60, 26 * 3600])
async def test_a_job_deferred_after_its_pause_was_lifted_is_freed_whatever_the_clocks_say(make_app, off):
    clock = ManualClock()
    store = Between(clock)
    slow, other = with_tasks(make_app(store, clock=clock)), make_app(store.sibling(), clock=clock)
    await other.pause(task="send")
    held = await slow.enqueue("send", "ann")
    await session_of(slow).task_pauses.refresh()

    async def lifted_and_looked_for():
        await other.resume(task="send")
        clock.jump_wall(off)
        for _ in range(2):
            await look(other)
        clock.jump_wall(-off)

    store.act = lifted_and_looked_for  # when `slow` has claimed the job, and has read that its task is paused
    assert await slow.claim() == []
    assert await states(held) == [State.BLOCKED]
    await look(other)
    assert await states(held) == [State.QUEUED]
    assert await parts_of(other).records.all(KIND) == {}


async def test_a_lifted_pause_is_forgotten_once_every_claim_of_its_time_has_ended(app, send):
    await send.enqueue("ann")
    [early] = await app.claim()
    await app.pause(task="send")
    await app.resume(task="send")
    await send.enqueue("bob")
    [late] = await app.claim()
    await look(app)
    await late.complete()
    await look(app)
    assert list(await parts_of(app).records.all(KIND)) == ["send"], "the early claim could still defer its job"
    await early.complete()
    await look(app)
    assert await parts_of(app).records.all(KIND) == {}


async def test_a_claim_of_later_does_not_keep_a_lifted_pause(app, send):
    await app.pause(task="send")
    await app.resume(task="send")
    await look(app)
    assert await parts_of(app).records.all(KIND) == {}
    assert await app.bulk.paused_tasks() == []


async def test_one_that_is_paused_again_meanwhile_is_not_forgotten(app, make_app):
    other = (
        make_app(parts_of(app).runtime.store.sibling())
        if parts_of(app).url == "memory://"
        else make_app(parts_of(app).url)
    )
    await app.pause(task="send")
    await app.resume(task="send")
    await session_of(app).task_pauses.refresh()
    await other.pause(task="send")
    await session_of(app).task_pauses.release_late()
    assert [one.name for one in await app.bulk.paused_tasks()] == ["send"]


async def test_to_resume_frees_what_waits_even_where_no_pause_is_known(app, send):
    await app.pause(task="send")
    held = await send.enqueue("ann")
    await work_off(app)
    await parts_of(app).records.put(KIND, "send", None)
    said = await app.explain(held.id)
    assert "resume the task again" in said.reason
    assert await app.resume(task="send")
    assert await states(held) == [State.QUEUED]


async def test_to_resume_what_is_not_paused_is_reported_apart(app, send):
    await app.pause(task="send", where={"customer": 42})
    await app.pause("mail")
    for other in ({"task": "send"}, {"task": "send", "where": {"customer": 43}}, {"queue": "default"}):
        assert await app.resume(**other) is False
    for paused in ({"task": "send", "where": {"customer": 42}}, {"queue": "mail"}):
        assert [await app.resume(**paused), await app.resume(**paused)] == [True, False]
    assert await app.bulk.paused_tasks() == []


async def test_a_quarantined_stays_one_while_it_is_paused(app, send):
    held = await send.enqueue("ann")
    [claim] = await app.claim()
    await parts_of(app).claims.leave([claim.holder.id])  # its lease ends now
    await eventually(app.bulk.recover)
    assert claim.job.id == held.id
    assert (await held.job()).quarantined
    await app.pause(task="send")
    await work_off(app)
    job = await held.job()
    assert (job.state, job.quarantined) == (State.BLOCKED, True)


async def test_a_deferred_job_can_be_cancelled_but_not_retried(app, send):
    await app.pause(task="send")
    held = await send.enqueue("ann")
    await work_off(app)
    with pytest.raises(InvalidState, match="it waits for the end of the pause of send"):
        await app.retry(held.id)
    assert await app.cancel(held.id)
    await app.resume(task="send")
    assert await states(held) == [State.CANCELLED]


async def test_a_deferred_job_can_be_replaced(app, send):
    await app.pause(task="send")
    held = await send.using(key="k", replace=True).enqueue("ann")
    await work_off(app)
    await send.using(key="k", replace=True).enqueue("bob")
    await work_off(app)
    assert await states(held) == [State.BLOCKED]
    await app.resume(task="send")
    await work_off(app)
    assert app.ran == [("bob", None)]


async def test_explain_names_the_pause_and_the_way_out_of_it(app, send):
    await app.pause(task="send", where={"customer": "a b"})
    held = await send.enqueue("ann", "a b")
    way_out = """`holdfast resume --task send --where 'customer="a b"'` resumes it"""
    for _ in range(2):
        assert way_out in (await app.explain(held.id)).reason
        await work_off(app)
    free = await send.enqueue("ann", "c")
    assert "paused" not in (await app.explain(free.id)).reason


@pytest.mark.sized
async def test_very_many_jobs_are_deferred_and_released(app, send, other):
    many = size(10_000)
    await app.pause(task="send")
    await app.enqueue_many([app.call(send, "ann", number) for number in range(many)])
    free = await other.enqueue("bob")
    await asyncio.wait_for(_until_idle(app), 60)
    assert (await app.stats()).counts | {"blocked": many, "succeeded": 1} == (await app.stats()).counts
    assert await states(free) == [State.SUCCEEDED]
    await app.resume(task="send")
    assert (await app.stats()).counts["queued"] == many


async def _until_idle(app):
    from holdfast import Worker

    await Worker(app, until_idle=True, concurrency=100).run()


async def test_what_nothing_knows_is_paused_all_the_same_and_said_to_be_unknown(app, caplog):
    assert not await app.pause("mial")
    assert not await app.pause(task="sned")
    assert [one.getMessage().partition(",")[0] for one in caplog.records] == [
        "queue 'mial' is paused",
        "task 'sned' is paused",
    ]
    assert [(queue.name, queue.paused) for queue in (await app.stats()).queues] == [("mial", True)]
    assert [one.name for one in await app.bulk.paused_tasks()] == ["sned"]
    assert await app.resume("mial")
    assert await app.resume(task="sned")


async def test_what_a_job_a_worker_a_schedule_or_the_code_has_is_known(app, send, make_app, caplog):
    other = (
        make_app(parts_of(app).runtime.store.sibling())
        if parts_of(app).url == "memory://"
        else make_app(parts_of(app).url)
    )
    assert await app.pause(task="send"), "by the code"
    await other.submit("import", b"", queue="files")
    assert await app.pause("files"), "by a job"
    assert await app.pause(task="import"), "by a job"
    await other.schedules.put("nightly", parts_of(other).registry.tasks["noop"].using(queue="night"), every=3600)
    assert await app.pause("night"), "by a schedule"
    async with working(app, queues=["rush"]):
        await eventually(app.workers)
        assert await other.pause("rush"), "by a worker"
        assert await other.pause(task="send"), "by a worker"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "give exactly one of a queue and task="),
        ({"queue": "mail", "task": "send"}, "give exactly one of a queue and task="),
        ({"queue": "mail", "where": {"customer": 42}}, "where= requires task="),
        ({"task": ""}, "a task name must be"),
        ({"task": "send", "where": [42]}, "where= must be a dict of arguments by name"),
        ({"task": "send", "where": {"customer": object()}}, "cannot be encoded"),
        ({"task": "send", "where": {"customer": "x" * 1000}}, "where= must be printable, together at most 384"),
    ],
)
async def test_what_makes_no_sense_is_refused(app, wrong, says):
    for method in (app.pause, app.resume):
        with pytest.raises(InvalidJob, match=says):
            await method(**wrong)
    assert await app.bulk.paused_tasks() == []


def test_a_pause_is_named_the_same_whatever_the_order():
    one, other = Pause("t", {"a": 1, "b": 2}), Pause("t", {"b": 2, "a": 1})
    assert one.name == other.name == "t where a=1, b=2"
