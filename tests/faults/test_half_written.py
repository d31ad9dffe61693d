"""Operations made of several writes, on every store: it goes away before each of their calls, or loses its answer.

StoreUnavailable says that nothing was written, and no error that all was. To repeat what failed leads to the same end.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
import pytest_asyncio

from holdfast import ConfigError, Filter, Holdfast, HoldfastError, OutcomeUnknown, PartialEnqueue, StoreUnavailable
from holdfast.app import parts_of
from holdfast.client import bulk_change as bulk_module
from holdfast.client import enqueue as enqueuing_module
from holdfast.client.signals import SignalMaintenance, kind_of
from holdfast.core.clock import SystemClock
from holdfast.core.job import NewJob
from holdfast.core.lifecycle import delete
from holdfast.core.operations import Where
from holdfast.core.waiting import Waiting
from holdfast.http import tokens
from holdfast.store import group_commit as commit_module
from holdfast.store.open import open_store
from support.failing import Failing
from support.inside import session_of

KINDS = ("config", "webhook", "pause", "task_pause", "schedule", "token", "signal", kind_of("go"))
OPERATIONS = {}
NOT_REPEATED = {"run_a_schedule_now", "enqueue_without_a_key", "make_a_token", "retry", "replace"}
"""Where the outcome is unknown, one looks before one repeats these; or what is made again is another."""


def operation(*, prepare=None):
    def known(operate):
        OPERATIONS[operate.__name__] = (prepare, operate)
        return operate

    return known


# -- what there is before


async def waiting_jobs(app):
    await session_of(app).commit.insert(
        [NewJob(f"w{n}", "work", "default", b"{}", waiting_for=Waiting("signal", "go")) for n in range(3)]
    )


async def waiting_jobs_and_an_old_value(app):
    await app.signal("go", "old")
    await waiting_jobs(app)


async def deferred_jobs(app):
    await app.pause(task="work")
    await app.enqueue_many([("work", n) for n in range(3)])
    assert await app.claim(limit=10) == []


async def dead_jobs(app):
    await app.enqueue_many([("work", n) for n in range(5)])
    for claim in await app.claim(limit=10):
        await claim.fail("broken", dead=True)


async def queued_jobs(app):
    await app.enqueue_many([("work", n) for n in range(5)])


async def a_keyed_job(app):
    await parts_of(app).registry.tasks["work"].using(key="k", replace=True).enqueue(1)


async def a_schedule(app):
    await app.schedules.put("s", "noop", every=3600)


async def a_paused_schedule(app):
    await a_schedule(app)
    await app.schedules.pause("s")


async def a_due_schedule(app):
    kept = await app.schedules.put("s", "noop", every=3600)
    due = msgspec.structs.replace(kept, next=kept.counted // 3_600_000_000 * 3_600_000_000)
    await parts_of(app).records.put("schedule", "s", msgspec.json.encode(due))


async def a_webhook(app):
    await app.webhooks.add("hook", "https://example.org/hook")


async def a_setting(app):
    await app.config.set("max_attempts", 7)


async def a_paused_queue(app):
    await app.pause("mail")


# -- what is done


@operation(prepare=waiting_jobs)
async def signal(app):
    await app.signal("go", "new")


@operation(prepare=waiting_jobs_and_an_old_value)
async def signal_again(app):
    await app.signal("go", "new")


@operation()
async def pause_a_task(app):
    await app.pause(task="work")


@operation(prepare=deferred_jobs)
async def resume_a_task(app):
    await app.resume(task="work")


@operation()
async def pause_a_queue(app):
    await app.pause("mail")


@operation(prepare=a_paused_queue)
async def resume_a_queue(app):
    await app.resume("mail")


@operation(prepare=a_setting)
async def set_config(app):
    await app.config.set("max_retries", 3)


@operation(prepare=a_setting)
async def unset_config(app):
    await app.config.unset("max_attempts")


@operation()
async def add_a_webhook(app):
    await app.webhooks.add("hook", "https://example.org/hook")


@operation(prepare=a_webhook)
async def remove_a_webhook(app):
    await app.webhooks.remove("hook")


@operation()
async def make_a_token(app):
    await tokens.create(parts_of(app).records, ["read"])


@operation()
async def set_a_schedule(app):
    await app.schedules.put("s", "noop", every=3600)


@operation(prepare=a_schedule)
async def change_a_schedule(app):
    await app.schedules.put("s", "noop", every=1800)


@operation(prepare=a_schedule)
async def pause_a_schedule(app):
    await app.schedules.pause("s")


@operation(prepare=a_paused_schedule)
async def resume_a_schedule(app):
    await app.schedules.resume("s")


@operation(prepare=a_schedule)
async def run_a_schedule_now(app):
    await app.schedules.run_now("s")


@operation(prepare=a_due_schedule)
async def make_due_runs(app):
    await (
        app.schedules.make_due_runs()
    )  # where the outcome is unknown it says nothing: the next look makes the same run


@operation()
async def enqueue_without_a_key(app):
    await app.enqueue("work", 1)


@operation()
async def enqueue_with_a_key(app):
    await parts_of(app).registry.tasks["work"].using(key="k").enqueue(1)


@operation(prepare=a_keyed_job)
async def replace(app):
    await parts_of(app).registry.tasks["work"].using(key="k", replace=True).enqueue(2)


@operation(prepare=a_keyed_job)
async def debounce(app):
    await parts_of(app).registry.tasks["work"].using(key="k", debounce=60, debounce_max=600).enqueue(2)


@operation()
async def enqueue_many(app):
    await app.enqueue_many([parts_of(app).registry.tasks["work"].using(key=f"k{n}").call(n) for n in range(5)])


@operation(prepare=dead_jobs)
async def retry(app):
    await app.retry((await app.jobs(state="dead")).jobs[-1].id)


@operation(prepare=dead_jobs)
async def retry_dead(app):
    await app.bulk.retry_dead()


@operation(prepare=dead_jobs)
async def purge(app):
    await app.bulk.purge()


@operation(prepare=queued_jobs)
async def cancel_many(app):
    await app.bulk.change("cancel", Filter(state=("queued",)))


@operation(prepare=dead_jobs)
async def retry_many(app):
    await app.bulk.change("retry", Filter(state=("dead",)))


@operation(prepare=dead_jobs)
async def delete_many(app):
    await app.bulk.change("delete", Filter(state=("dead",)))


# -- the test


@pytest_asyncio.fixture
async def app(store_url, monkeypatch):
    monkeypatch.setattr(commit_module, "RESENDS", (0.0,))
    monkeypatch.setattr(enqueuing_module, "PAGE", 2)
    monkeypatch.setattr(bulk_module, "PAGE", 2)
    app = Holdfast(Failing(open_store(store_url, SystemClock())), secret="of the test", poll=30.0)

    @app.task(name="work", max_attempts=1)
    async def work(n: int) -> None: ...

    async with app:
        yield app


async def records_of(app, kind):
    with suppress(ConfigError):  # tokens are out of reach over HTTP
        return (await session_of(app).store.records([kind]))[kind]
    return {}


async def wiped(app):
    """An empty store."""
    store = session_of(app).store
    while found := (await store.find(Where(), None, 1000)).records:
        await session_of(app).commit.change([delete(record) for record in found])
    for kind in KINDS:
        for name in await records_of(app, kind):
            await store.put_record(kind, name, None)
    await session_of(app).refresh()


async def seen(app):
    """What there is, once workers have done their part; without ids and times."""
    await session_of(app).task_pauses.refresh()
    await session_of(app).task_pauses.release_late()
    await SignalMaintenance(session_of(app)).run()
    records = {kind: await records_of(app, kind) for kind in KINDS if kind != "signal"}
    values = records.pop(kind_of("go"))
    jobs = (await session_of(app).store.find(Where(), None, 1000)).records
    return {
        "jobs": sorted(
            (r.task, r.state, str(r.waiting_for or ""), r.payload, r.key or "", r.reset_count) for r in jobs
        ),
        "config": sorted((name, kept.value) for name, kept in records.pop("config").items()),
        "schedules": sorted((s.name, s.words, s.paused, s.last_job is None) for s in await app.schedules.list()),
        "pauses": [pause.name for pause in await app.bulk.paused_tasks()],
        "signal": values[max(values)].value if values else None,
        "others": {kind: sorted(records[kind]) for kind in ("webhook", "pause")},
        "tokens": len(records["token"]),
    }


async def tried(app, operate):
    try:
        await operate(app)
    except HoldfastError as error:
        return error
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("loses_answers", [False, True], ids=["goes away", "loses an answer"])
async def test_an_operation_that_is_interrupted_says_what_was_written(app, loses_answers):
    parts_of(app).runtime.store.loses_answers = loses_answers
    for name, (prepare, operate) in OPERATIONS.items():
        if name != "make_a_token" or parts_of(app).runtime.store.name != "remote":  # tokens are made where the store is
            await demand_the_truth(app, name, prepare, operate)


async def demand_the_truth(app, name, prepare, operate):
    """Interrupt one operation at each of its calls."""
    store = parts_of(app).runtime.store

    async def begin():
        await wiped(app)
        if prepare is not None:
            await prepare(app)
        return await seen(app)

    await begin()
    store.made = 0
    assert await tried(app, operate) is None, name
    calls, done = store.made, await seen(app)
    for calls_left in range(calls):
        before = await begin()
        store.calls_left = calls_left
        error = await tried(app, operate)
        store.calls_left = None
        after, where = await seen(app), f"{name}, at call {calls_left + 1} of {calls}: {error!r}"
        if error is None and name != "make_due_runs":
            assert after == done, where
            continue
        assert error is None or isinstance(error, StoreUnavailable | OutcomeUnknown | PartialEnqueue), where
        if isinstance(error, StoreUnavailable):
            assert after == before, where
        if isinstance(error, PartialEnqueue) and not isinstance(error.__cause__, OutcomeUnknown):
            assert len(after["jobs"]) == sum(handle is not None for handle in error.handles), where
        if isinstance(error, StoreUnavailable) or name not in NOT_REPEATED:
            assert await tried(app, operate) is None, where
            assert await seen(app) == done, where
