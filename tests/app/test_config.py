"""Settings kept in the store, for everybody who uses it."""

import pytest

from holdfast import ConfigError, State
from holdfast.app import parts_of
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off


@pytest.fixture
def app(make_app):
    app = make_app()

    @app.task
    def fail() -> None:
        raise RuntimeError("no")

    return app


async def test_a_setting_is_kept_as_it_was_understood(app):
    assert await app.config.set("max-retries", "2") == ("max_retries", 2)
    assert await app.config.get("max_retries") == 2
    assert await app.config.get("MAX-RETRIES") == 2
    assert await app.config.set("retention", "2d") == ("retention", 172_800.0)
    assert await app.config.list() == {"max_retries": 2, "retention": 172_800.0}


async def test_what_is_not_set_is_none(app):
    assert await app.config.get("concurrency") is None
    assert await app.config.list() == {}


async def test_a_setting_can_be_forgotten(app):
    await app.config.set("concurrency", 3)
    await app.config.unset("concurrency")
    await app.config.unset("concurrency")
    assert await app.config.list() == {}


async def test_a_wrong_value_is_refused_and_the_old_one_stays(app):
    await app.config.set("concurrency", 3)
    with pytest.raises(ConfigError, match="concurrency must be a whole number from 1 to 10000"):
        await app.config.set("concurrency", "many")
    assert await app.config.get("concurrency") == 3


@pytest.mark.parametrize("name", ["max_atempts", "secret", "url"])
async def test_a_name_that_is_no_stored_setting_is_refused(app, name):
    for call in (lambda: app.config.set(name, 1), lambda: app.config.get(name), lambda: app.config.unset(name)):
        with pytest.raises(ConfigError, match="cannot be kept in the store; these settings can: "):
            await call()


async def test_a_stored_setting_is_seen_by_the_next_to_open_the_store(app, make_app):
    await app.config.set("max_retries", 2)
    other = make_app(session_of(app).store.sibling())
    assert (await (await other.submit("a", b"")).job()).max_attempts == 2


async def test_a_process_sees_its_own_setting_at_once(app):
    await app.enqueue("noop")
    await app.config.set("max_retries", 2)
    assert (await (await app.enqueue("noop")).job()).max_attempts == 2
    await app.config.unset("max_retries")
    assert (await (await app.enqueue("noop")).job()).max_attempts == 5


async def test_others_see_it_within_seconds():
    from holdfast import Holdfast

    clock = ManualClock()
    store = MemoryStore(clock)
    async with Holdfast(store, clock=clock) as one, Holdfast(store.sibling(), clock=clock) as other:
        await other.enqueue("noop")
        await one.config.set("max_retries", 2)
        clock.advance(11)

        async def seen():
            return (await (await other.enqueue("noop")).job()).max_attempts == 2

        await eventually(seen)


async def test_the_call_and_the_environment_come_before_the_store(app, make_app, monkeypatch):
    await app.config.set("max_retries", 2)
    store = session_of(app).store
    monkeypatch.setenv("HOLDFAST_MAX_ATTEMPTS", "3")
    by_environment = make_app(store.sibling())
    assert (await (await by_environment.submit("a", b"")).job()).max_attempts == 3
    by_call = make_app(store.sibling(), max_attempts=4)
    assert (await (await by_call.submit("a", b"")).job()).max_attempts == 4


async def test_backoff_base_decides_how_long_a_failed_job_waits(app):
    await app.config.set("backoff_base", 3)
    handle = await app.enqueue("fail")
    await work_off(app)
    job = await handle.job()
    assert job.state == State.FAILED
    assert (job.run_at - job.history[0].ended_at).total_seconds() == pytest.approx(3, abs=0.01)


async def test_one_setting_under_two_names_is_one_setting(app):
    await app.config.set("max_attempts", 9)
    await app.config.set("max_retries", 2)
    assert (await (await app.enqueue("noop")).job()).max_attempts == 2, "the last word counts"
    await app.config.set("max_attempts", 4)
    assert (await (await app.enqueue("noop")).job()).max_attempts == 4


async def test_a_later_retry_base_counts_though_a_backoff_base_was_set_before(app):
    await app.config.set("backoff_base", 3)
    await app.config.set("retry_factor", 7)
    assert session_of(app).settings.retry_factor == 7


async def test_settings_of_workers_are_read_when_they_start(app):
    await app.config.set("concurrency", 3)
    from support.workers import working

    async with working(app) as worker:
        await eventually(lambda: worker.holder is not None)
        assert worker.holder.slots == 3


async def test_something_strange_in_the_store_keeps_nobody_from_opening(app, make_app):
    await parts_of(app).records.put("config", "concurrency", b'"a great many"')
    await parts_of(app).records.put("config", "from_the_future", b"[1]")
    other = make_app(session_of(app).store.sibling())
    assert (await other.stats()).workers == 0
    assert session_of(other).settings.concurrency is None


async def test_a_record_that_is_no_json_keeps_nobody_from_opening(app, make_app):
    await parts_of(app).records.put("config", "concurrency", b"\xff not json")
    other = make_app(session_of(app).store.sibling())
    assert (await other.stats()).workers == 0
