"""Remote control: what operators request of a live worker is applied once, answered, and shown."""

import asyncio
import threading
from contextlib import asynccontextmanager

import msgspec
import pytest

from holdfast import ConfigError, Context, Holdfast, InvalidJob, State, StoreUnavailable, Worker, WorkerNotFound
from holdfast.client import control
from holdfast.client.control import ControlMaintenance, Request, decode_reply, encode
from holdfast.core.operations import Holder
from holdfast.store.protocol import CONTROL, CONTROL_REPLY, records_of
from support.eventually import eventually
from support.inside import session_of
from support.workers import working


@asynccontextmanager
async def registered(app, **options):
    """A worker, once it is in the store."""
    async with working(app, **{"poll": 0.05, **options}) as worker:
        await eventually(lambda: worker.holder is not None)
        yield worker


async def left(app):
    return await session_of(app).store.records([CONTROL, CONTROL_REPLY])


async def test_a_quiet_worker_runs_what_it_has_and_claims_no_more_until_it_is_resumed(app):
    gate, began = asyncio.Event(), asyncio.Event()

    @app.task
    async def wait() -> None:
        began.set()
        await gate.wait()

    async with registered(app) as worker:
        first = await wait.enqueue()
        await began.wait()
        [reply] = await app.workers.quiet(worker.holder.id)
        assert (reply.worker, reply.action, reply.error, reply.state) == (worker.holder.id, "quiet", None, "quiet")
        second = await wait.enqueue()
        gate.set()
        assert (await first.wait(timeout=30)).state == State.SUCCEEDED
        await app.workers.stacks(worker.holder.id)  # a round of the heartbeat
        assert (await second.job()).state == State.QUEUED
        assert [one.state for one in await app.workers()] == ["quiet"]
        [reply] = await app.workers.resume(all_workers=True)
        assert (await second.wait(timeout=30)).state == State.SUCCEEDED
        assert [one.state for one in await app.workers()] == ["active"]
    assert await left(app) == {CONTROL: {}, CONTROL_REPLY: {}}


@pytest.mark.parametrize("signal_first", [False, True])
async def test_a_signal_and_an_operators_stop_keep_the_grace_period(app, signal_first):
    gate, began = asyncio.Event(), asyncio.Event()

    @app.task
    async def wait() -> None:
        began.set()
        await gate.wait()

    async with registered(app, grace=60) as worker:
        job = await wait.enqueue()
        await began.wait()
        if signal_first:
            worker.stop()
        await app.workers.stop(worker.holder.id)
        if not signal_first:
            worker.stop()
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        done = await job.wait(timeout=30)
    assert (done.state, done.attempt) == (State.SUCCEEDED, 1)


async def test_all_workers_and_one_of_them_are_not_asked_at_once(app):
    async with registered(app) as worker:
        with pytest.raises(InvalidJob, match="give no ids"):
            await app.workers.quiet(worker.holder.id, all_workers=True)
        assert [one.state for one in await app.workers()] == ["active"]


async def test_a_batch_of_a_quiet_worker_takes_no_more_jobs(app):
    calls, adding = [], asyncio.Event()

    @app.task(batch=10, wait=0.4)
    async def add(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        return numbers

    app.on("lease_acquired", lambda _: adding.set())
    async with registered(app) as worker:
        first = await add.enqueue(1)
        await adding.wait()
        await app.workers.quiet(worker.holder.id)
        second = await add.enqueue(2)
        await first.wait(timeout=30)
        assert calls == [1]
        assert (await second.job()).state == State.QUEUED


async def test_a_worker_that_drains_stops_when_its_last_job_has_ended(app):
    gate, began = asyncio.Event(), asyncio.Event()

    @app.task
    async def wait() -> None:
        began.set()
        await gate.wait()

    worker = Worker(app, poll=0.05, grace=0.0)
    running = asyncio.create_task(worker.run())
    handle = await wait.enqueue()
    await began.wait()
    [reply] = await app.workers.drain(worker.holder.id)
    assert (reply.state, running.done()) == ("draining", False)
    waiting = await wait.enqueue()
    gate.set()
    await asyncio.wait_for(running, 30)
    assert (await handle.job()).state == State.SUCCEEDED
    assert (await waiting.job()).state == State.QUEUED
    assert await app.workers() == []


async def test_a_drain_can_be_undone(app):
    gate, began = asyncio.Event(), asyncio.Event()

    @app.task
    async def wait() -> None:
        began.set()
        await gate.wait()

    async with registered(app) as worker:
        await wait.enqueue()
        await began.wait()
        await app.workers.drain(worker.holder.id)
        [reply] = await app.workers.resume(worker.holder.id)
        assert reply.state == "active"
        gate.set()
        assert (await (await wait.enqueue()).wait(timeout=30)).state == State.SUCCEEDED


async def test_a_stop_gives_running_jobs_the_grace_period_and_another_one_does_not_shorten_it(app):
    gate, began = asyncio.Event(), asyncio.Event()

    @app.task
    async def wait() -> None:
        began.set()
        await gate.wait()

    worker = Worker(app, poll=0.05, grace=60.0)
    running = asyncio.create_task(worker.run())
    handle = await wait.enqueue()
    await began.wait()
    for _ in range(2):
        [reply] = await app.workers.stop(worker.holder.id)
        assert (reply.error, reply.state) == (None, "stopping")
    [refused] = await app.workers.quiet(worker.holder.id)
    assert "is stopping, so the request was refused" in refused.error
    assert [one.state for one in await app.workers()] == ["stopping"]
    gate.set()
    await asyncio.wait_for(running, 30)
    assert ((await handle.job()).state, (await handle.job()).attempt) == (State.SUCCEEDED, 1)


@pytest.mark.parametrize("before", [False, True])
async def test_a_stop_now_releases_running_jobs_uncharged(app, before):
    began = asyncio.Event()

    @app.task
    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    worker = Worker(app, poll=0.05, grace=600.0)
    running = asyncio.create_task(worker.run())
    handle = await wait.enqueue()
    await began.wait()
    if before:
        await app.workers.stop(worker.holder.id)
    await app.workers.stop(worker.holder.id, now=True)
    await asyncio.wait_for(running, 30)
    job = await handle.job()
    assert (job.state, job.attempt) == (State.QUEUED, 0)


async def test_a_worker_without_a_supervisor_refuses_to_restart_and_goes_on(app):
    async with registered(app) as worker:
        [reply] = await app.workers.restart(worker.holder.id)
        assert "has no supervisor that could start it again, so it was not stopped" in reply.error
        assert await (await app.enqueue("noop")).result(timeout=30) is None


async def test_concurrency_is_raised_and_lowered_while_jobs_run(app):
    gate, inside = threading.Event(), []

    @app.task
    def block() -> None:
        inside.append(1)
        gate.wait(60)

    async with registered(app, concurrency=1) as worker:
        handles = [await block.enqueue() for _ in range(4)]
        await eventually(lambda: len(inside) == 1)
        [reply] = await app.workers.concurrency(3, worker.holder.id)
        assert reply.slots == 3
        await eventually(lambda: len(inside) == 3)
        [reply] = await app.workers.concurrency(1, worker.holder.id)
        assert [one.slots for one in await app.workers()] == [1]
        gate.set()
        assert {(await handle.wait(timeout=30)).state for handle in handles} == {State.SUCCEEDED}
        with pytest.raises(Exception, match="concurrency"):
            await app.workers.concurrency(0, worker.holder.id)


async def test_stacks_show_where_tasks_are_and_no_values(app):
    gate, inside = threading.Event(), asyncio.Event()

    async def deep(password: str) -> None:
        inside.set()
        await asyncio.gather(asyncio.create_task(deeper(password)))

    async def deeper(password: str) -> None:
        await asyncio.Event().wait()  # the innermost

    @app.task
    async def suspended(password: str) -> None:
        await deep(password)

    @app.task
    def in_thread(password: str) -> None:
        gate.wait(60)

    async with registered(app, grace=0.0) as worker:
        first, second = await suspended.enqueue("hunter2"), await in_thread.enqueue("hunter2")
        await inside.wait()
        await eventually(lambda: worker.active == 2)

        async def both():
            [reply] = await app.workers.stacks(worker.holder.id)
            found = {one.job: one for one in reply.stacks if one.job is not None}
            return found if found.keys() == {first.id, second.id} else None

        found = await eventually(both)
        assert (found[first.id].kind, found[first.id].task) == ("task", "suspended")
        text = "".join(found[first.id].frames)
        assert "in suspended" in text
        assert "in deep" in text
        assert "asyncio.Event().wait()  # the innermost" in text, "it follows the tasks that a task waits for"
        assert (found[second.id].kind, "gate.wait(60)" in "".join(found[second.id].frames)) == ("thread", True)
        [reply] = await app.workers.stacks(worker.holder.id)
        assert b"hunter2" not in encode(reply)
        gate.set()


@pytest.mark.parametrize("plain", [False, True])
async def test_the_stack_of_a_batch_names_its_first_job(app, plain):
    gate, release = threading.Event(), asyncio.Event()

    @app.task(name="many", batch=2, wait=60)
    async def in_the_loop(items: list[int]) -> None:
        await release.wait()  # the call

    @app.task(name="many_plain", batch=2, wait=60)
    def in_thread(items: list[int]) -> None:
        gate.wait(60)  # the call

    task = in_thread if plain else in_the_loop
    async with registered(app) as worker:
        first, _ = [await task.enqueue(n) for n in range(2)]

        async def shown():
            [reply] = await app.workers.stacks(worker.holder.id)
            return [one for one in reply.stacks if "# the call" in "".join(one.frames)] or None

        [found] = await eventually(shown)
        assert (found.kind, found.job, found.task) == ("thread" if plain else "task", first.id, task.name)
        gate.set()
        release.set()


async def test_a_worker_whose_loop_is_blocked_answers_by_its_next_heartbeat(make_app):
    app = make_app(lease=0.9, poll=0.05)
    await app.open()
    operator = Holdfast(session_of(app).store.sibling())
    gate, inside = threading.Event(), threading.Event()
    replies = []

    @app.task
    async def block() -> None:
        inside.set()
        gate.wait(60)  # blocks the event loop

    def operate():
        inside.wait(60)
        id = operator.sync.workers()[0].id
        replies.extend(operator.sync.workers.stacks(id))
        replies.extend(operator.sync.workers.quiet(id))
        operator.sync.close()
        gate.set()

    async with registered(app):
        other = threading.Thread(target=operate)
        other.start()
        handle = await block.enqueue()
        await handle.wait(timeout=60)
        await asyncio.to_thread(other.join)
    stacks, quiet = replies
    assert any("gate.wait(60)" in frame for one in stacks.stacks for frame in one.frames)
    assert (quiet.error, quiet.state) == (None, "quiet")


async def test_who_is_not_alive_gets_no_request(app):
    async with registered(app) as worker:
        id = worker.holder.id
        for workers, target, said in (
            (("nobody",), {}, "nobody is not the id of a live worker"),
            ((id, "a", "b"), {}, "a, b are not the id of a live worker"),
            ((), {"host": "elsewhere"}, "no live worker has host 'elsewhere'"),
            ((id,), {"version": "9.9"}, "no live worker has version '9.9'"),
        ):
            with pytest.raises(WorkerNotFound, match=said):
                await app.workers.quiet(*workers, **target)
        with pytest.raises(InvalidJob, match="no request was sent: name its workers"):
            await app.workers.stop()
        assert (await left(app))[CONTROL] == {}
        assert [one.state for one in await app.workers()] == ["active"]
        [reply] = await app.workers.quiet(host=worker.holder.node, version=worker.holder.version)
        assert reply.worker == id
    with pytest.raises(WorkerNotFound, match="no request was sent: no live worker;"):
        await app.workers.quiet(all_workers=True)


async def pretended(app, name="node:1:gone", lease=600.0):
    """A live worker that answers nothing."""
    await session_of(app).store.heartbeat([Holder(name, lease)])
    return name


async def test_a_request_without_an_answer_is_withdrawn_and_nothing_was_changed(app):
    await app.open()
    name = await pretended(app)
    [reply] = await app.workers.stop(name, timeout=0.05)
    assert f"worker {name} did not answer within 0.05 s; the request was withdrawn and not applied" in reply.error
    assert await left(app) == {CONTROL: {}, CONTROL_REPLY: {}}


async def test_a_request_whose_client_was_interrupted_is_withdrawn(app):
    await app.open()
    name, store = await pretended(app), session_of(app).store
    asking = asyncio.create_task(app.workers.stop(name, timeout=600))
    await eventually(lambda: records_of(store, CONTROL))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await left(app) == {CONTROL: {}, CONTROL_REPLY: {}}


async def test_the_audit_log_says_which_requests_were_not_applied(app):
    async with registered(app) as worker:
        await app.workers.quiet(worker.holder.id)
        await app.workers.restart(worker.holder.id)
        await app.workers.stop(await pretended(app), timeout=0.05)
        stop, restart, quiet = (await app.audit.list(action="worker.control")).entries
    assert (quiet.status, quiet.error) == ("done", None)
    assert (restart.status, stop.status) == ("failed", "failed")
    assert restart.error.startswith("1 of 1 workers: ")
    assert "has no supervisor" in restart.error
    assert "the request was withdrawn and not applied" in stop.error


async def test_the_audit_log_names_the_workers_that_a_request_for_all_or_for_a_host_was_sent_to(app):
    async with registered(app) as worker:
        await app.workers.quiet(all_workers=True)
        await app.workers.resume(host=worker.holder.node)
        resume, quiet = (await app.audit.list(action="worker.control")).entries
    assert quiet.target["workers"] == resume.target["workers"] == [worker.holder.id]
    assert quiet.target["all_workers"] is True
    assert resume.target["host"] == worker.holder.node


async def test_a_request_that_was_taken_without_an_answer_may_have_been_applied(app):
    await app.open()
    name, store = await pretended(app), session_of(app).store
    asking = asyncio.create_task(app.workers.stop(name, timeout=0.5))
    request = await eventually(lambda: records_of(store, CONTROL))
    for one in request:
        await store.put_record(CONTROL, one, None)
    [reply] = await asking
    assert "took the request but did not answer within 0.5 s; it may have been applied" in reply.error


async def test_a_request_is_applied_by_the_worker_that_takes_it_or_not_at_all(app, monkeypatch):
    """The client withdraws it between the worker's read and its removal."""
    withdrawn = threading.Event()
    real = control.records_of

    async def read(store, kind):
        found = await real(store, kind)
        for name in found:
            if name.endswith("/withdrawn"):
                await store.put_record(CONTROL, name, None)
                withdrawn.set()
        return found

    monkeypatch.setattr("holdfast.worker.control.records_of", read)  # before the worker first reads
    async with registered(app) as worker:
        name = f"{worker.holder.id}/withdrawn"
        await session_of(app).store.put_record(CONTROL, name, encode(Request("quiet")))
        await eventually(withdrawn.is_set)
        await app.workers.stacks(worker.holder.id)
        assert [one.state for one in await app.workers()] == ["active"]
        assert (await left(app))[CONTROL_REPLY] == {}


async def test_an_answer_that_could_not_be_stored_is_stored_later_and_the_request_applied_once(app, monkeypatch):
    async with registered(app, lease=0.9) as worker:
        real, failed = type(session_of(app).store).put_record, []

        async def put(self, kind, name, value, expect=None):
            if kind == CONTROL_REPLY and value is not None and len(failed) < 2:
                failed.append(name)
                raise control.HoldfastError("not now")
            return await real(self, kind, name, value, expect)

        monkeypatch.setattr(type(session_of(app).store), "put_record", put)
        [reply] = await app.workers.quiet(worker.holder.id, timeout=30)
        assert (reply.error, reply.state, len(failed)) == (None, "quiet", 2)


WRONG = [b"[", b'{"action":"dance"}', b'{"action":"concurrency"}']
WRONG += [b'{"action":"concurrency","size":%d}' % size for size in (0, 10_001)]


@pytest.mark.parametrize("value", WRONG)
async def test_a_request_that_the_worker_does_not_know_harms_nobody(app, value):
    async with registered(app) as worker:
        store = session_of(app).store
        await store.put_record(CONTROL, f"{worker.holder.id}/1", value)
        [found] = (await eventually(lambda: records_of(store, CONTROL_REPLY))).values()
        assert decode_reply(found.value).error
        assert [one.state for one in await app.workers()] == ["active"]


async def test_maintenance_removes_requests_to_workers_that_have_ended_and_old_answers(app, monkeypatch):
    await app.open()
    session, name = session_of(app), await pretended(app)
    store, maintenance = session.store, ControlMaintenance(session)
    for worker in (name, "node:2:unknown"):
        await store.put_record(CONTROL, f"{worker}/1", encode(Request("stop")))
    await store.put_record(CONTROL_REPLY, "node:2:unknown/0", b"{}")
    await maintenance.run()
    found = await left(app)
    assert (list(found[CONTROL]), list(found[CONTROL_REPLY])) == ([f"{name}/1"], ["node:2:unknown/0"])
    await store.leave([name])
    monkeypatch.setattr(control, "REPLY_KEPT", 0.0)
    await maintenance.run()
    assert await left(app) == {CONTROL: {}, CONTROL_REPLY: {}}


async def test_a_blocking_program_controls_workers(app):
    async with registered(app) as worker:
        [reply] = await asyncio.to_thread(app.sync.workers.quiet, worker.holder.id)
        assert reply.state == "quiet"


def test_an_answer_has_a_size_that_every_store_accepts():
    assert msgspec.json.decode(encode(control.ControlReply("w", "quiet"))) == {"worker": "w", "action": "quiet"}
    assert control.REPLY_BYTES < 1024**2


async def test_many_stacks_are_cut_to_what_an_answer_may_have(app, monkeypatch):
    from holdfast.worker import control as serving

    monkeypatch.setattr(serving, "MAX_STACKS", 3)

    @app.task
    async def wait(ctx: Context) -> None:
        await asyncio.Event().wait()

    async with registered(app, grace=0.0) as worker:
        for _ in range(5):
            await wait.enqueue()
        await eventually(lambda: worker.active == 5)
        [reply] = await app.workers.stacks(worker.holder.id)
        assert len(reply.stacks) == 3
        assert reply.left_out > 1
        assert all(one.job for one in reply.stacks), "those of jobs come first"


async def test_a_store_that_fails_after_the_requests_were_sent_does_not_hide_their_answers(app, monkeypatch):
    async with registered(app) as worker:
        store = session_of(app).store
        read, failed = store.records, []

        async def records(kinds):
            if CONTROL_REPLY in kinds and len(failed) < 2:
                failed.append(True)
                raise StoreUnavailable("away")
            return await read(kinds)

        monkeypatch.setattr(store, "records", records)
        [reply] = await app.workers.quiet(worker.holder.id)
        assert (reply.error, reply.state, len(failed)) == (None, "quiet", 2)


async def test_a_store_that_stays_away_after_the_requests_were_sent_leaves_them_unknown(app, monkeypatch):
    async with registered(app) as worker:
        store = session_of(app).store

        async def records(_kinds):
            raise StoreUnavailable("away")

        monkeypatch.setattr(store, "records", records)
        [reply] = await app.workers.quiet(worker.holder.id, timeout=0.1)
        assert "is unknown" in reply.error
        await eventually(lambda: worker.holder.state == "quiet")


async def test_a_worker_stops_as_requested_also_if_the_store_is_slow_meanwhile(app, monkeypatch):
    worker = Worker(app, poll=0.05)
    running = asyncio.create_task(worker.run())
    await eventually(lambda: worker.holder is not None)
    control_of = worker._control
    store = control_of.heartbeat._store
    beat, slow = store.heartbeat, []

    async def heartbeat(holders):
        if holders[0].state == "stopping" and not slow:
            slow.append(True)
            control_of.heartbeat._serving.cancel()  # as its timeout does
            await asyncio.sleep(30)
        return await beat(holders)

    monkeypatch.setattr(store, "heartbeat", heartbeat)
    await app.workers.stop(worker.holder.id, timeout=1)
    await asyncio.wait_for(running, 30)
    assert slow


async def test_an_answer_that_is_refused_does_not_keep_back_the_next(app, monkeypatch):
    async with registered(app) as worker:
        store = worker._control.heartbeat._store
        put, refused = store.put_record, []

        async def put_record(kind, name, value, expect=None):
            if kind == CONTROL_REPLY and value is not None and (not refused or refused[0] == name):
                refused.append(name)
                raise ConfigError("forbidden")
            return await put(kind, name, value, expect)

        monkeypatch.setattr(store, "put_record", put_record)
        [reply] = await app.workers.quiet(worker.holder.id, timeout=0.3)
        assert "took the request" in reply.error
        [reply] = await app.workers.resume(worker.holder.id)
        assert (reply.error, len(refused)) == (None, 1)
