"""The audit log: who did what, when, and with which outcome; pages of it, and its retention."""

from __future__ import annotations

import asyncio
import inspect
import socket

import pytest

from holdfast import ConfigError, Holdfast, InvalidJob, InvalidState, JobNotFound, OutcomeUnknown, StoreUnavailable
from holdfast.app import parts_of
from holdfast.client import audit, audit_log, audited
from holdfast.client.audit import Audit
from holdfast.client.audit_log import HOURS, KIND, AuditLog, AuditMaintenance
from holdfast.client.bulk import Bulk
from holdfast.client.claims import ManualClaims
from holdfast.client.config import Config
from holdfast.client.control import Workers
from holdfast.client.edits import Edits
from holdfast.client.errors import ErrorGroups
from holdfast.client.operations import Operations
from holdfast.client.search import Filter
from holdfast.client.timeseries import Timeseries
from holdfast.flows.service import Flows
from holdfast.http import tokens
from holdfast.http.operator_writes import OperatorWrites
from holdfast.observe import actors
from holdfast.observe.actors import Actor, acting
from holdfast.schedules.service import Schedules
from holdfast.store.protocol import records_of
from holdfast.store.reference.apply import new_record
from holdfast.store.reference.memory import MemoryStore
from holdfast.sync.app import SyncApp
from holdfast.testing.build import new_job
from holdfast.webhooks.service import Webhooks
from support.dead_jobs import make_dead
from support.eventually import eventually
from support.inside import session_of

NOT_ACTIONS = {
    Operations: {"signal", "needed", "change"},
    Bulk: {"search", "count", "paused_tasks"},
    Config: {"get", "list"},
    Schedules: {"list", "get", "put", "declare", "make_due_runs"},
    Webhooks: {"list", "key"},
    Flows: {
        "enqueue", "add", "members", "list", "in_the_making", "status", "delete", "process_now", "store_follow_ups",
        "with_results", "retry_jobs", "graph", "progress",
    },
    Edits: set(),
    Workers: {"quiet", "resume", "drain", "stop", "restart", "concurrency", "stacks"},
    Audit: {"list"},
    tokens: {"tokens"},
}  # fmt: skip
"""Async functions of each service that read, are part of another action, or call the one that is: `keep`, `send`."""


def acting_functions(service):
    found = inspect.getmembers(service, inspect.iscoroutinefunction)
    own = service.__name__
    return {
        name: fn
        for name, fn in found
        if not name.startswith("_") and (inspect.isclass(service) or fn.__module__ == own)
    }


async def entries(app, **wanted):
    return (await app.audit.list(**wanted)).entries


def test_every_function_of_every_service_is_an_action_or_listed_as_none():
    for service, others in NOT_ACTIONS.items():
        functions = acting_functions(service)
        marked = {name for name, fn in functions.items() if "audited" in vars(fn)}
        assert marked.isdisjoint(others)
        assert marked | others >= functions.keys(), f"{service}: mark it as @audited, or add it to NOT_ACTIONS"
    assert "audited" in vars(ManualClaims.mark_failed)


def test_every_service_of_an_app_is_known_here(make_app):
    """A new service is listed in NOT_ACTIONS, or among those that only read."""
    app = make_app(MemoryStore())
    services = {type(getattr(app, name)) for name in dir(Holdfast) if isinstance(vars(Holdfast).get(name), property)}
    ours = {kind for kind in services if kind.__module__.startswith("holdfast.")}
    assert ours - NOT_ACTIONS.keys() == {SyncApp, ErrorGroups, Timeseries}


def test_every_action_has_its_own_name():
    assert audited.ACTIONS["store.write"].startswith(OperatorWrites.__module__)  # in a server alone
    assert sorted(audited.ACTIONS) == [
        "audit.undo", "bulk.change", "bulk.move", "bulk.purge", "bulk.recover", "bulk.retry_dead", "cancel", "clone",
        "config.set", "config.unset", "delete", "edit", "flow.cancel", "flow.retry", "mark_failed", "pause", "resume",
        "retry", "schedule.delete", "schedule.pause", "schedule.put", "schedule.resume", "schedule.run_now",
        "store.write", "token.create", "token.edit", "token.revoke", "update_meta", "webhook.add", "webhook.remove",
        "worker.control",
    ]  # fmt: skip


async def test_an_action_has_its_actor_target_outcome_and_what_it_replaced(app):
    async with app:
        job = await app.submit("work", b"{}", json=True, queue="mail", delay=600)
        assert await app.cancel(job.id)
        [entry] = await entries(app)
        assert (entry.action, entry.target, entry.status, entry.count) == ("cancel", {"id": job.id}, "done", 1)
        assert (entry.surface, entry.jobs) == ("python", {"scheduled": [job.id]})
        assert entry.actor.endswith(f"@{socket.gethostname()}")
        assert (entry.before["state"], entry.before["queue"], entry.before["priority"]) == ("scheduled", "mail", 0)
        assert entry.at <= entry.ended_at
        with app.audit.acting_as("alice"):
            await app.pause("mail")
        assert not await app.resume("other")
        resumed, paused, _ = await entries(app)
        assert (paused.actor, paused.target, paused.before) == ("alice", {"queue": "mail"}, {"paused": False})
        assert (resumed.actor, resumed.status) == (entry.actor, "done")


async def test_every_kind_of_action_is_recorded_once(app):
    @app.task
    def work(n: int = 0) -> None: ...

    async with app:
        job = await work.enqueue(1)
        await job.update_meta(a=1)
        await job.edit(args={"n": 5}, priority=3)
        other = await job.clone()
        await app.cancel(job.id)
        await app.retry(job.id)
        await app.bulk.change("cancel", ids=[other.id])
        await app.bulk.move("work", "work2")
        await app.bulk.retry_dead()
        await app.bulk.purge(state="cancelled")
        await app.bulk.recover()
        await app.pause(task="work", where={"n": 1})
        await app.resume(task="work", where={"n": 1})
        await app.delete(job.id)
        await app.schedules.put("s", work.call(1), every=60)
        await app.schedules.pause("s")
        await app.schedules.resume("s")
        await app.schedules.run_now("s")
        await app.schedules.delete("s")
        await app.config.set("poll", 2)
        await app.config.unset("poll")
        token = await tokens.create(parts_of(app).records, ["read"], "ops")
        await tokens.edit(parts_of(app).records, token.split("_")[1], expires=60)
        await tokens.revoke(parts_of(app).records, token.split("_")[1])
        found = await entries(app, limit=100)
    assert [entry.action for entry in reversed(found)] == [
        "update_meta", "edit", "clone", "cancel", "retry", "bulk.change", "bulk.move", "bulk.retry_dead", "bulk.purge",
        "bulk.recover", "pause", "resume", "delete", "schedule.put", "schedule.pause", "schedule.resume",
        "schedule.run_now", "schedule.delete", "config.set", "config.unset", "token.create", "token.edit",
        "token.revoke",
    ]  # fmt: skip
    assert {entry.status for entry in found} == {"done"}
    by_name = {entry.action: entry for entry in found}
    assert by_name["config.unset"].before == {"value": 2}
    assert by_name["token.create"].target == {"roles": ["read"], "label": "ops", "id": token.split("_")[1]}
    assert by_name["schedule.delete"].before["schedule"]["task"] == "work"
    assert by_name["edit"].target == {"id": job.id, "args": "given", "priority": 3}
    assert by_name["update_meta"].target == {"id": job.id, "meta": "given"}
    text = str(found)
    assert token.split("_", 2)[2] not in text


async def test_an_action_of_a_flow_has_one_entry(app):
    from holdfast import Flow

    @app.task
    def step() -> None: ...

    async with app:
        flow = Flow("two")
        flow.add(step)
        flow.add(step)
        handle = await app.enqueue_flow(flow)
        await app.cancel(handle.id)
        await handle.retry()
        await app.bulk.change("cancel", ids=[handle.id])
        await handle.retry()
        await handle.cancel()
        found = [entry.action for entry in reversed(await entries(app))]
    assert found == ["cancel", "flow.retry", "bulk.change", "flow.retry", "flow.cancel"]


async def test_a_bulk_action_has_its_filter_count_and_ids(app):
    async with app:
        ids = await make_dead(app, 1003)
        await app.bulk.change("retry", Filter(state="dead", queue="default", text="boom"))
        assert await app.bulk.retry_dead(dry_run=True) == 3
        await app.bulk.change("delete", Filter(state="dead"), dry_run=True)
        [entry] = await entries(app)
    assert entry.target == {"action": "retry", "filter": {"state": "dead", "queue": "default", "text": "boom"}}
    assert (entry.status, entry.count, len(entry.jobs["dead"])) == ("done", 1000, 1000)
    assert set(entry.jobs["dead"]) <= set(ids)


def test_the_ids_of_many_changed_jobs_do_not_fill_the_memory():
    token = actors.action.set(now := actors.Action())
    try:
        for number in range(3 * actors.IDS_LIMIT):
            job = new_record(new_job(str(number)), number, 0)
            job.state = "dead" if number % 2 else "failed"
            actors.note_changed(job)
    finally:
        actors.action.reset(token)
    assert (now.changed, sum(map(len, now.jobs.values()))) == (3 * actors.IDS_LIMIT, actors.IDS_LIMIT)


async def test_refused_and_failed_actions_have_their_errors(make_app):
    class Failing(MemoryStore):
        error: Exception | None = None

        async def write(self, batch):
            if batch.changes and self.error is not None:
                raise self.error
            return await super().write(batch)

    store = Failing()
    app = make_app(store)
    async with app:
        with pytest.raises(JobNotFound):
            await app.cancel("no-such-job")
        with pytest.raises(InvalidJob):
            await app.pause("a\nb\ud800")
        with pytest.raises(ConfigError):
            await app.config.set("no_such_setting", 1)
        job = await app.submit("work", b"{}", json=True)
        await app.claim()
        with pytest.raises(InvalidState):
            await app.retry(job.id)
        await app.submit("work", b"{}", json=True, id="waits")
        store.error = StoreUnavailable("the disk is full")
        with pytest.raises(StoreUnavailable):
            await app.cancel("waits")
        store.error = OutcomeUnknown("the answer was lost")
        with pytest.raises(OutcomeUnknown):
            await app.cancel("waits")
        found = await entries(app)
    assert [entry.status for entry in reversed(found)] == ["refused"] * 4 + ["failed", "unknown"]
    assert "no-such-job" in found[-1].error
    assert {entry.count for entry in found} == {None}


async def test_an_action_does_not_begin_without_its_entry(make_app):
    class Failing(MemoryStore):
        error: Exception | None = None

        async def put_record(self, kind, name, value, expect=None):
            if kind.startswith(KIND) and self.error is not None:
                raise self.error
            return await super().put_record(kind, name, value, expect)

    store = Failing()
    app = make_app(store)
    async with app:
        job = await app.submit("work", b"{}", json=True)
        for error in (StoreUnavailable("down"), OutcomeUnknown("lost")):
            store.error = error
            with pytest.raises(StoreUnavailable, match="was not begun"):
                await app.cancel(job.id)
        store.error = None
        assert (await app.job(job.id)).state == "queued"


async def test_an_action_whose_outcome_cannot_be_stored_has_happened(make_app, monkeypatch, caplog):
    class Failing(MemoryStore):
        puts = 0

        async def put_record(self, kind, name, value, expect=None):
            if kind.startswith(f"{KIND}:"):
                self.puts += 1
                if self.puts == 2:
                    raise StoreUnavailable("down")
            return await super().put_record(kind, name, value, expect)

    app = make_app(Failing())
    async with app:
        job = await app.submit("work", b"{}", json=True)
        assert await app.cancel(job.id)
        assert (await app.job(job.id)).state == "cancelled"
        assert "was not stored" in caplog.text
        [entry] = await entries(app)
        assert (entry.status, entry.ended_at) == ("running", None)
        monkeypatch.setattr(audit, "INTERRUPTED_AFTER", -1.0)
        [entry] = await entries(app)
        assert (entry.status, entry.target) == ("interrupted", {"id": job.id})


async def test_a_long_action_is_not_shown_as_interrupted(make_app, monkeypatch):
    """Its process renews its entry: without that, the age alone would decide."""
    monkeypatch.setattr(audited, "RENEW", 0.01)
    monkeypatch.setattr(audit, "INTERRUPTED_AFTER", 0.0)
    go_on = asyncio.Event()

    class Slow(MemoryStore):
        async def write(self, batch):
            if batch.changes:
                await go_on.wait()
            return await super().write(batch)

    app = make_app(Slow())
    async with app:
        job = await app.submit("work", b"{}", json=True)
        cancelling = asyncio.create_task(app.cancel(job.id))
        store, seen = session_of(app).store, set()
        while len(seen) < 3:
            for second in await records_of(store, f"{HOURS}:{next(iter(await records_of(store, HOURS)), '')}"):
                seen |= {kept.version for kept in (await records_of(store, f"{KIND}:{second}")).values()}
            await asyncio.sleep(0)
        go_on.set()
        assert await cancelling
        [entry] = await entries(app)
        assert entry.status == "done"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_renewal_in_flight_does_not_replace_the_outcome(make_app, monkeypatch, fails):
    monkeypatch.setattr(audited, "RENEW", 0.01)
    renewing, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def write(self, batch):
            if batch.changes:
                await renewing.wait()
                asyncio.get_running_loop().call_later(0.2, go_on.set)
                if fails:
                    raise OutcomeUnknown("lost")
            return await super().write(batch)

        async def put_record(self, kind, name, value, expect=None):
            if _renews(kind, value, expect) and not renewing.is_set():
                renewing.set()
                return await asyncio.shield(asyncio.ensure_future(self.late(kind, name, value, expect)))
            return await super().put_record(kind, name, value, expect)

        async def late(self, kind, name, value, expect):
            """Sent, so it is written also if its caller is cancelled."""
            await go_on.wait()
            return await super().put_record(kind, name, value, expect)

    app = make_app(Slow())
    async with app:
        job = await app.submit("work", b"{}", json=True)
        if fails:
            with pytest.raises(OutcomeUnknown):
                await app.cancel(job.id)
        else:
            await app.cancel(job.id)
        await go_on.wait()
        await asyncio.sleep(0.05)
        [entry] = await entries(app)
        assert entry.status == ("unknown" if fails else "done")


def _renews(kind, value, expect):
    return kind.startswith(f"{KIND}:") and expect != 0 and b"outcome" not in value


async def test_a_renewal_without_an_answer_that_arrives_late_does_not_replace_the_outcome(make_app, monkeypatch):
    monkeypatch.setattr(audited, "RENEW", 0.01)
    renewed, late = asyncio.Event(), []

    class Lossy(MemoryStore):
        async def write(self, batch):
            if batch.changes:
                await renewed.wait()
            return await super().write(batch)

        async def put_record(self, kind, name, value, expect=None):
            if _renews(kind, value, expect):
                late.append((kind, name, value, expect))
                renewed.set()
                raise OutcomeUnknown("lost")
            return await super().put_record(kind, name, value, expect)

    store = Lossy()
    app = make_app(store)
    async with app:
        job = await app.submit("work", b"{}", json=True)
        await app.cancel(job.id)
        for write in late:
            await MemoryStore.put_record(store, *write)
        [entry] = await entries(app)
        assert entry.status == "done"


async def test_a_cancelled_call_leaves_no_outcome(make_app):
    go_on = asyncio.Event()

    class Slow(MemoryStore):
        async def write(self, batch):
            if batch.changes:
                await go_on.wait()
            return await super().write(batch)

    app = make_app(Slow())
    async with app:
        job = await app.submit("work", b"{}", json=True)
        cancelling = asyncio.create_task(app.cancel(job.id))
        await eventually(lambda: entries(app))
        cancelling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelling
        [entry] = await entries(app)
        assert entry.status == "running"
        go_on.set()


async def test_the_actions_of_an_event_handler_are_its_own(app):
    async with app:
        one, two = [await app.submit("work", b"{}", json=True) for _ in range(2)]
        made = []

        def cancel_the_other(event):
            made.append(asyncio.create_task(app.cancel(two.id)))
            app.on("job_cancelled", lambda _: None)

        app.on("job_cancelled", lambda event: cancel_the_other(event) if event.job_id == one.id else None)
        await app.cancel(one.id)
        await asyncio.gather(*made)
        assert {entry.target["id"] for entry in await entries(app)} == {one.id, two.id}


async def test_an_action_is_an_event(app):
    seen = []
    app.on("operator_action", seen.append)
    async with app:
        job = await app.submit("work", b"{}", json=True)
        with acting(Actor("ann@host", "cli")):
            await app.cancel(job.id)
        [entry] = await entries(app)
    [event] = seen
    assert event.fields == {
        "action": "cancel", "actor": "ann@host", "surface": "cli", "outcome": "done", "about": job.id, "count": 1,
        "audit_id": entry.id,
    }  # fmt: skip


async def test_with_a_retention_of_0_nothing_is_recorded(make_app):
    app = make_app(audit_retention=0)
    async with app:
        job = await app.submit("work", b"{}", json=True)
        assert await app.cancel(job.id)
        assert await entries(app) == []


def test_blocking_code_acts_as_its_thread_says(make_app):
    app: Holdfast = make_app()
    with app.sync as jobs:
        job = jobs.submit("work", b"{}", json=True)
        with app.audit.acting_as("bob"):
            job.cancel()
        [entry] = jobs.audit.list(actor="bob").entries
        assert (entry.action, entry.target) == ("cancel", {"id": job.id})
        copy = job.clone(delay=60)
        assert copy.edit(queue="slow").queue == "slow"


async def test_actions_at_the_same_time_keep_their_order(make_app):
    class SameTime(MemoryStore):
        async def now(self):
            return 1_700_000_000_000_000

    app = make_app(SameTime())
    async with app:
        for number in range(20):
            await app.pause(f"queue {number}")
        found = await entries(app)
        assert [entry.target["queue"] for entry in found] == [f"queue {number}" for number in reversed(range(20))]


async def test_pages_filters_and_cursors(app):
    async with app:
        for number in range(25):
            with app.audit.acting_as(f"actor {number % 2}"):
                await app.pause(f"queue {number}")
        await app.config.set("poll", 2)
        found, cursor = [], None
        while True:
            page = await app.audit.list(action="pause", limit=10, cursor=cursor)
            found += page.entries
            if (cursor := page.cursor) is None:
                break
        assert [entry.target["queue"] for entry in found] == [f"queue {number}" for number in reversed(range(25))]
        assert len({entry.id for entry in found}) == 25
        assert len(await entries(app, actor="tor 1", limit=100)) == 12
        assert [entry.target["queue"] for entry in await entries(app, about="queue 17")] == ["queue 17"]
        assert [entry.action for entry in await entries(app, action="config")] == ["config.set"]
        for wrong in ("", "x", "0" * 16 + "-1234567", "\u0661" * 16 + "-12345678"):
            with pytest.raises(InvalidJob, match="cursor"):
                await app.audit.list(cursor=wrong)
        with pytest.raises(InvalidJob, match="limit"):
            await app.audit.list(limit=0)


class Moving(MemoryStore):
    """A store whose clock goes on by a given time at each look, and which counts the records that it reads."""

    step = 0
    ahead = 0
    read = 0

    async def now(self):
        self.ahead += self.step + 1
        return 1_800_000_000_000_000 + self.ahead  # the beginning of an hour

    async def records(self, kinds):
        found = await super().records(kinds)
        self.read += sum(map(len, found.values()))
        return found


async def test_a_page_reads_few_of_many_entries(make_app):
    store = Moving()
    app = make_app(store)
    async with app:
        log = AuditLog(parts_of(app).runtime)
        for _ in range(3):  # three bursts, hours apart, then sparse ones
            for _ in range(1000):
                await log.begin("pause", Actor("a", "cli"), {"queue": "x"})
            store.ahead += 3 * 3600 * 1_000_000
        store.step = 7_000_000
        for _ in range(2000):
            await log.begin("pause", Actor("a", "cli"), {"queue": "x"})
        store.step, store.read = 0, 0
        page = await app.audit.list(limit=50)
        assert len(page.entries) == 50
        assert store.read < 1000  # of 5,000
        seen = {entry.id for entry in page.entries}
        while page.cursor is not None:
            page = await app.audit.list(limit=1000, cursor=page.cursor)
            assert seen.isdisjoint(entry.id for entry in page.entries)
            seen |= {entry.id for entry in page.entries}
        assert len(seen) == 5000


async def test_entries_are_removed_after_their_retention(make_app, monkeypatch):
    monkeypatch.setattr(audit_log, "WATCHED", 0.0)
    store = Moving()
    app = make_app(store, audit_retention=24 * 3600)
    async with app:
        log = AuditLog(parts_of(app).runtime)
        for _ in range(3):
            for _ in range(700):
                await log.begin("pause", Actor("a", "cli"), {})
            store.ahead += 3600 * 1_000_000
        maintenance = AuditMaintenance(session_of(app))
        await maintenance.run()
        assert len(await records_of(store, HOURS)) == 3
        store.ahead += 23 * 3600 * 1_000_000
        await log.begin("pause", Actor("new", "cli"), {})
        await maintenance.run()
        assert len(store._data.jobs.kept) < 2000  # a step is bounded, and the rest stays listed
        for _ in range(3):
            await maintenance.run()
        [entry] = [entry for entry in await entries(app, limit=1000) if entry.actor == "new"]
        assert entry.status == "running"
        assert len(await records_of(store, HOURS)) <= 2
        store.ahead += 48 * 3600 * 1_000_000
        await maintenance.run()
        await maintenance.run()
        assert not [kind for kind in store._data.jobs.kept if kind.startswith(KIND)]


async def test_a_process_that_has_just_started_removes_nothing(make_app):
    """Its clock may be wrong."""
    store = Moving()
    app = make_app(store, audit_retention=60)
    async with app:
        await app.pause("a")
        store.ahead += 30 * 24 * 3600 * 1_000_000
        await AuditMaintenance(session_of(app)).run()
        assert len(await entries(app)) == 1


async def test_an_undecodable_entry_harms_no_other(app):
    async with app:
        await app.pause("a")
        await app.pause("b")
        store = session_of(app).store
        [hour] = await records_of(store, HOURS)
        for second in await records_of(store, f"{HOURS}:{hour}"):
            for name, kept in (await records_of(store, f"{KIND}:{second}")).items():
                if b'"queue":"a"' in kept.value:
                    await store.put_record(f"{KIND}:{second}", name, b'{"action": 7}')
        await store.put_record(HOURS, "not a number", b"{}")
        await store.put_record(f"{HOURS}:{hour}", "-1", b"{}")
        assert [entry.target for entry in await entries(app)] == [{"queue": "b"}]
        await AuditMaintenance(session_of(app)).run()


def test_the_log_itself_is_no_action():
    assert not any("audited" in vars(fn) for fn in acting_functions(AuditLog).values())
