"""`using(on_success=…, on_dead=…)`: the follow-up job is stored once for each end of a job, also over crashes."""

import ast
import asyncio

import pytest

from holdfast import Flow, InvalidJob, State, limit
from holdfast.app import parts_of
from holdfast.core.follow_ups import owed
from holdfast.core.lifecycle import Outcome
from holdfast.flows.creation import ENDED
from holdfast.flows.release import Release
from holdfast.store.protocol import records_of
from support.eventually import eventually
from support.flowing import ByHand, Tasks
from support.inside import release_of, session_of
from support.workers import work_off, working


@pytest.fixture
def tasks(app):
    made = Tasks(app)

    @app.task(queue="after", max_attempts=2)
    async def shipped(job_id: str) -> None:
        made.ran.append(("shipped", job_id))

    @app.task
    async def reported(job_id: str) -> None:
        made.ran.append(("reported", job_id))

    made.shipped, made.reported = shipped, reported
    return made


class Nameless:
    """A codec without a name."""

    def dumps(self, value):
        return b"\xff" + repr(value).encode()

    def loads(self, data):
        return ast.literal_eval(data[1:].decode())


async def follow_ups(app, handle):
    return [job for job in (await app.jobs(limit=1000)).jobs if job.meta.get("follows") == handle.id]


async def ended(app, outcome=None):
    """Claim all jobs, and end them with this outcome, as another worker would that dies then."""
    other = ByHand(app)
    for claim in await other.claim():
        await other.end(claim, outcome)


async def recorded(app):
    return await records_of(session_of(app).store, ENDED)


async def repair(app):
    await release_of(app).repair()


@pytest.mark.parametrize("broken", [False, True])
async def test_the_follow_up_of_its_end_runs_with_the_id_of_the_job(app, tasks, broken):
    tasks.broken = broken
    handle = await tasks.fragile.using(on_success=tasks.shipped, on_dead=tasks.reported).enqueue("x")
    await work_off(app, queues=["default", "after"])
    assert tasks.ran[not broken :] == [("reported" if broken else "shipped", handle.id)]
    [job] = await follow_ups(app, handle)
    assert (job.queue, job.max_attempts) == (("default", 5) if broken else ("after", 2))
    assert job.payload == {"job_id": handle.id}
    assert await recorded(app) == {}


async def test_a_job_that_only_follows_the_other_end_is_not_recorded(app, tasks):
    handle = await tasks.note.using(on_dead=tasks.reported).enqueue("x")
    await ended(app)
    assert await recorded(app) == {}
    assert (await handle.job()).state == State.SUCCEEDED


async def test_a_cancelled_job_has_no_follow_up(app, tasks):
    handle = await tasks.note.using(on_success=tasks.shipped, on_dead=tasks.reported, delay=60).enqueue("x")
    assert await handle.cancel()
    await repair(app)
    assert await follow_ups(app, handle) == []


async def test_another_worker_stores_it_if_the_process_dies_after_the_end(app, tasks):
    handle = await tasks.note.using(on_success=tasks.shipped).enqueue("x")
    await ended(app)
    assert await follow_ups(app, handle) == []
    assert set(await recorded(app)) == {handle.id}
    await repair(app)
    assert len(await follow_ups(app, handle)) == 1
    assert await recorded(app) == {}


async def test_it_is_stored_once_though_several_workers_store_it(app, tasks):
    handle = await tasks.note.using(on_success=tasks.shipped).enqueue("x")
    await ended(app)
    await asyncio.gather(*(release_of(app).free([handle.id]) for _ in range(5)))
    assert len(await follow_ups(app, handle)) == 1


async def test_it_is_stored_once_though_the_process_dies_before_that_is_noted(app, tasks, monkeypatch):
    handle = await tasks.note.using(on_success=tasks.shipped).enqueue("x")
    await ended(app)

    async def dies(self, *args):
        raise RuntimeError("the process died here")

    with monkeypatch.context() as patched:
        patched.setattr(Release, "_free_dependents", dies)
        with pytest.raises(RuntimeError):
            await release_of(app).free([handle.id])
    assert len(await follow_ups(app, handle)) == 1
    await repair(app)
    assert len(await follow_ups(app, handle)) == 1
    assert await recorded(app) == {}


async def test_one_that_cannot_be_stored_harms_no_other_and_is_stored_later(app, tasks, caplog):
    first, second = [await tasks.note.using(on_success=tasks.shipped).enqueue(word) for word in "ab"]
    await ended(app)

    async def refuses(job, store_it):
        if job.meta.get("follows") == first.id:
            raise RuntimeError("not now")
        return await store_it(job)

    app.around_enqueue.append(refuses)
    await repair(app)
    assert (len(await follow_ups(app, first)), len(await follow_ups(app, second))) == (0, 1)
    assert "was not stored, a worker will retry: not now" in caplog.text
    assert set(await recorded(app)) == {first.id}
    app.around_enqueue.clear()
    await repair(app)
    assert (len(await follow_ups(app, first)), len(await follow_ups(app, second))) == (1, 1)


async def test_one_whose_id_belongs_to_another_job_is_not_stored(app, tasks, caplog):
    handle = await tasks.note.using(on_success=tasks.shipped).enqueue("x")
    await ended(app)
    await tasks.note.using(id=owed(await parts_of(app).handles.record(handle.id)).id).enqueue("y")
    await repair(app)
    assert "was not stored, a worker will retry" in caplog.text
    assert set(await recorded(app)) == {handle.id}


@pytest.mark.parametrize("by", ["worker", "client"])
async def test_one_that_ran_and_was_deleted_is_not_stored_again_from_an_earlier_read(app, tasks, by):
    handle = await tasks.note.using(on_success=tasks.reported).enqueue("x")
    await ended(app)
    seen, record = await recorded(app), await parts_of(app).handles.record(handle.id)
    await repair(app)
    await ended(app)
    [job] = await follow_ups(app, handle)
    await app.delete(job.id)
    await (release_of(app).repair(None, None, seen) if by == "worker" else release_of(app).store_follow_ups([record]))
    assert await follow_ups(app, handle) == []


async def test_the_end_of_a_job_that_was_recorded_after_the_read_still_has_its_follow_up(app, tasks):
    handle = await tasks.note.using(on_success=tasks.reported).enqueue("x")
    await ended(app)
    await release_of(app).free([handle.id], {})
    assert len(await follow_ups(app, handle)) == 1


@pytest.mark.parametrize("what", ["retry", "delete"])
async def test_a_follow_up_that_cannot_be_stored_is_named_as_the_cause(app, tasks, what, caplog):
    bad, good = [await tasks.fragile.using(on_dead=tasks.reported).enqueue(word) for word in "ab"]
    await ended(app, Outcome.dead("broke"))

    async def refuses(job, store_it):
        if job.meta.get("follows") == bad.id:
            raise RuntimeError("never")
        return await store_it(job)

    app.around_enqueue.append(refuses)
    with pytest.raises(RuntimeError, match="never") as error:
        await getattr(app, what)(bad.id)
    assert "because its follow-up could not be stored" in error.value.__notes__[0]
    seen = []
    done = app.bulk.retry_dead if what == "retry" else app.bulk.purge
    assert await done(progress=seen.append) == 1
    assert (seen[-1].matched, seen[-1].reasons) == (2, {"follow_up": 1})
    assert f"job {bad.id} was not" in caplog.text
    assert (await bad.job()).state == State.DEAD
    assert len(await follow_ups(app, good)) == 1


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("what", ["retry", "delete"])
async def test_a_retry_or_delete_after_the_end_stores_it_first(app, tasks, what, many):
    handle = await tasks.fragile.using(on_dead=tasks.reported).enqueue("x")
    await ended(app, Outcome.dead("broke"))
    if many:
        await (app.bulk.retry_dead() if what == "retry" else app.bulk.purge(state="dead"))
    else:
        await getattr(app, what)(handle.id)
    assert len(await follow_ups(app, handle)) == 1
    await repair(app)
    assert len(await follow_ups(app, handle)) == 1


async def test_each_life_of_a_job_has_its_own_follow_up_and_no_second(app, tasks):
    handle = await tasks.fragile.using(on_dead=tasks.reported).enqueue("x")
    await ended(app, Outcome.dead("broke"))
    await repair(app)
    [first] = await follow_ups(app, handle)
    await ended(app)
    await app.delete(first.id)
    await app.retry(handle.id)  # its end was processed: nothing is stored again
    assert await follow_ups(app, handle) == []
    await ended(app, Outcome.dead("broke again"))
    await repair(app)
    [second] = await follow_ups(app, handle)
    assert second.id != first.id


async def test_the_job_is_kept_until_its_follow_up_is_stored(make_app):
    app = make_app(retention=0)
    tasks = Tasks(app)
    handle = await tasks.note.using(on_success=tasks.note).enqueue("x")
    await ended(app)
    await session_of(app).store.tidy(1000)
    assert (await handle.job()).state == State.SUCCEEDED
    await repair(app)
    assert len(await follow_ups(app, handle)) == 1
    await session_of(app).store.tidy(1000)
    assert [job.id for job in (await app.jobs()).jobs] == [job.id for job in await follow_ups(app, handle)]


async def test_options_and_limits_of_the_follow_up_are_those_given(app, tasks):
    @app.task(limit=limit(concurrency=1))
    async def limited(job_id: str) -> None: ...

    followed = limited.using(queue="slow", priority=3, timeout=9, delay=60, tags=["a"], expires=90)
    handle = await tasks.note.using(on_success=followed, on_dead="elsewhere", key="k").enqueue("x")
    await ended(app)
    await repair(app)
    [job] = await follow_ups(app, handle)
    assert (job.queue, job.priority, job.timeout, job.tags, job.state) == ("slow", 3, 9, ("a",), State.SCHEDULED)
    assert [one.name for one in job.limits] == ["limited"]
    assert job.expires_at is not None
    by_name = await tasks.fragile.using(on_dead="elsewhere").enqueue("x")
    await ended(app, Outcome.dead("broke"))
    await repair(app)
    [job] = await follow_ups(app, by_name)
    assert (job.task, job.payload) == ("elsewhere", {"*": [by_name.id]})


async def test_a_replaced_job_keeps_its_follow_up(app, tasks):
    first = await tasks.note.using(on_success=tasks.shipped, unique="until_start", key="k", delay=60).enqueue("x")
    again = await tasks.note.using(key="k", replace=True).enqueue("y")
    assert again.id == first.id
    await ended(app)
    await repair(app)
    assert len(await follow_ups(app, first)) == 1


async def test_what_cannot_follow_is_refused_before_anything_is_stored(app, tasks):
    @app.task
    async def two(job_id: str, other: int) -> None: ...

    @app.task(codec=Nameless())
    async def packed(job_id: str) -> None: ...

    for given, words in [
        (7, r"on_success= takes a task, task\.using\(…\) or the name of a task, not 7"),
        (tasks.note.call("x"), "on_success= takes a task"),
        (two, "its task must take one argument, the id of that job: .*other"),
        (tasks.shipped.using(key="k"), "its options cannot have key="),
        (tasks.shipped.using(on_success=tasks.shipped), "its options cannot have on_success="),
    ]:
        with pytest.raises(InvalidJob, match=words):
            await tasks.note.using(on_success=given).enqueue("x")
    with pytest.raises(InvalidJob, match=r"on_dead= of job .*: task 'packed' has its own codec"):
        await tasks.note.using(on_dead=packed).enqueue("x")
    flow = Flow()
    with pytest.raises(InvalidJob, match="whose task has its own codec"):
        flow.add(tasks.note, flow.add(packed, "x"))
    with pytest.raises(InvalidJob, match="cannot be used with on_success="):
        tasks.note.using(on_success=tasks.shipped, key="k", debounce=5)
    with pytest.raises(InvalidJob, match="a job of a flow cannot have on_success="):
        Flow().add(tasks.note.using(on_success=tasks.shipped), "x")
    with pytest.raises(InvalidJob, match="cannot have on_dead="):
        await app.schedules.put("s", tasks.note.using(on_dead=tasks.shipped).call("x"), every=60)
    assert (await app.jobs()).jobs == []


async def test_a_worker_stores_it_at_once(app, tasks):
    handle = await tasks.note.using(on_success=tasks.reported).enqueue("x")
    async with working(app, poll=30):
        await handle.wait(90)
        await eventually(lambda: tasks.ran[1:])
    assert tasks.ran == ["x", ("reported", handle.id)]
