"""Keys: the same key gives the same job."""

import asyncio

import pytest

from holdfast import Holdfast, JobExists, JobNotFound, KeyConflict, OutcomeUnknown, State
from holdfast.app import parts_of
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.inside import session_of
from support.workers import work_off

DAY = 86400


def with_tasks(app):
    @app.task
    def greet(name: str, times: int = 1) -> str:
        return f"hello {name}" * times

    @app.task
    def part(name: str, times: int = 1) -> str:
        return f"bye {name}" * times

    return app


@pytest.fixture
def app(make_app):
    return with_tasks(make_app())


@pytest.fixture
def greet(app):
    return parts_of(app).registry.tasks["greet"]


async def test_the_same_key_and_call_give_the_same_job(app, greet):
    first = await greet.using(key="welcome-42").enqueue("ann")
    again = await greet.using(key="welcome-42").enqueue("ann")
    assert again.id == first.id
    assert len((await app.jobs()).jobs) == 1
    assert (await first.job()).key == "welcome-42"


async def test_the_same_call_may_be_written_in_another_way(greet):
    first = await greet.using(key="k").enqueue("ann", 2)
    assert (await greet.using(key="k").enqueue(times=2, name="ann")).id == first.id


async def test_options_are_not_compared(greet):
    first = await greet.using(key="k").enqueue("ann")
    again = await greet.using(key="k", delay=60, priority=5, queue="other", max_attempts=1, meta={"a": 1}).enqueue(
        "ann"
    )
    assert again.id == first.id


async def test_the_same_key_with_another_argument_is_refused(app, greet):
    first = await greet.using(key="k").enqueue("ann")
    with pytest.raises(KeyConflict, match="key 'k' belongs to job") as refused:
        await greet.using(key="k").enqueue("bob")
    assert (refused.value.key, refused.value.job_id, refused.value.retry_safe) == ("k", first.id, False)
    assert len((await app.jobs()).jobs) == 1


async def test_the_same_key_with_another_task_is_refused(app, greet):
    await greet.using(key="k").enqueue("ann")
    with pytest.raises(KeyConflict):
        await parts_of(app).registry.tasks["part"].using(key="k").enqueue("ann")


async def test_of_many_who_use_a_key_at_once_all_get_one_job(app, greet):
    handles = await asyncio.gather(*(greet.using(key="k").enqueue("ann") for _ in range(50)))
    assert len({handle.id for handle in handles}) == 1
    assert len((await app.jobs()).jobs) == 1


async def test_of_many_who_differ_one_wins_and_the_others_are_reported(app, greet):
    tries = [greet.using(key="k").enqueue(f"name {n}") for n in range(20)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, KeyConflict) for one in answers) == 19
    assert len((await app.jobs()).jobs) == 1


async def test_two_apps_on_one_store_share_its_keys(app, greet, make_app):
    await app.open()
    other = with_tasks(make_app(session_of(app).store.sibling()))
    tries = [
        task.using(key="k").enqueue("ann")
        for task in (greet, parts_of(other).registry.tasks["greet"])
        for _ in range(10)
    ]
    assert len({handle.id for handle in await asyncio.gather(*tries)}) == 1


async def test_one_batch_may_contain_a_key_twice(app, greet):
    first, second = await app.enqueue_many([greet.using(key="k").call("ann"), greet.using(key="k").call("ann")])
    assert first.id == second.id
    assert len((await app.jobs()).jobs) == 1


async def test_a_key_is_remembered_after_its_job_has_ended(app, greet):
    first = await greet.using(key="k").enqueue("ann")
    await work_off(app)
    again = await greet.using(key="k").enqueue("ann")
    assert again.id == first.id
    assert await again.result(timeout=30) == "hello ann"


async def test_a_key_of_a_job_that_was_deleted_before_it_ran_is_free(app, greet):
    first = await greet.using(key="k").enqueue("ann")
    await app.delete(first.id)
    second = await greet.using(key="k").enqueue("bob")
    assert second.id != first.id


async def test_an_explicit_id_with_a_key_is_one_job_as_well(app, greet):
    assert (await greet.using(key="k", id="mine").enqueue("ann")).id == "mine"
    assert (await greet.using(key="k", id="mine").enqueue("ann")).id == "mine"
    assert (await greet.using(key="k", id="other").enqueue("ann")).id == "mine"
    assert len((await app.jobs()).jobs) == 1


async def test_a_submitted_payload_has_keys_too(app):
    first = await app.submit("raw", b"one", key="k")
    assert (await app.submit("raw", b"one", key="k")).id == first.id
    with pytest.raises(KeyConflict):
        await app.submit("raw", b"two", key="k")


class Forgetful(MemoryStore):
    """Writes everything, and loses every answer."""

    lost = True

    async def write(self, batch):
        answers = await super().write(batch)
        if self.lost:
            raise OutcomeUnknown("the answer was lost")
        return answers


@pytest.fixture
def forgetful(monkeypatch):
    monkeypatch.setattr("holdfast.store.group_commit.RESENDS", (0.0,))
    return with_tasks(Holdfast(Forgetful()))


async def test_an_enqueue_with_a_key_whose_outcome_is_unknown_may_be_repeated(forgetful):
    async with forgetful as app:
        greet = parts_of(app).registry.tasks["greet"].using(key="k")
        with pytest.raises(OutcomeUnknown) as unknown:
            await greet.enqueue("ann")
        assert unknown.value.retry_safe
        session_of(app).store.lost = False
        await greet.enqueue("ann")
        assert len((await app.jobs()).jobs) == 1


async def test_an_enqueue_without_a_key_whose_outcome_is_unknown_says_which_job_to_look_for(forgetful):
    async with forgetful as app:
        with pytest.raises(OutcomeUnknown) as unknown:
            await parts_of(app).registry.tasks["greet"].enqueue("ann")
        assert not unknown.value.retry_safe, "a second call would be a second job"
        session_of(app).store.lost = False
        [id] = unknown.value.job_ids
        assert [job.id for job in (await app.jobs()).jobs] == [id]


async def test_an_enqueue_with_an_id_of_its_own_whose_outcome_is_unknown_is_never_stored_twice(forgetful):
    async with forgetful as app:
        greet = parts_of(app).registry.tasks["greet"].using(id="mine")
        with pytest.raises(OutcomeUnknown) as unknown:
            await greet.enqueue("ann")
        assert unknown.value.retry_safe
        session_of(app).store.lost = False
        with pytest.raises(JobExists):
            await greet.enqueue("ann")
        assert [job.id for job in (await app.jobs()).jobs] == ["mine"]


async def test_a_key_outlives_its_job_and_is_forgotten_in_the_end():
    clock = ManualClock()
    app = with_tasks(Holdfast(MemoryStore(clock), clock=clock, retention=60, key_retention=2 * DAY))
    async with app:
        greet = parts_of(app).registry.tasks["greet"]
        first = await greet.using(key="k").enqueue("ann")
        await work_off(app)
        clock.advance(DAY)
        await session_of(app).store.tidy(100)
        with pytest.raises(JobNotFound):
            await first.job()
        assert (await greet.using(key="k").enqueue("ann")).id == first.id, "remembered, though the job is gone"
        clock.advance(2 * DAY)
        again = await greet.using(key="k").enqueue("bob")
        assert again.id != first.id
        assert (await again.job()).state == State.QUEUED
