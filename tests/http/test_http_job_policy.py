"""The job policy over HTTP: every write of a job is checked."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import msgspec
import pytest

from holdfast import ConfigError, Flow, Holdfast, InvalidJob, State, UnknownTask
from holdfast.app import parts_of
from holdfast.core import internal
from holdfast.core.internal import FollowUp, Internal
from holdfast.core.job import NewJob
from holdfast.core.lifecycle import Outcome
from holdfast.core.operations import Change, Patch, Settlement
from holdfast.http import asgi
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch
from holdfast.worker.run.shell import allow_shell
from support.flowing import ByHand
from support.http import serving
from support.inside import session_of
from support.workers import work_off

EVIL = b'{"command": "touch /tmp/evil"}'


async def a_shell_job(app, id, **fields):
    """A job enqueued directly in the store."""
    await app.open()
    job = NewJob(id, "shell", "default", b'{"command": "date"}', **fields)
    assert (await session_of(app).store.write(Batch(inserts=[job]))).inserts[0].outcome == "created"


async def a_dead_one(app, id, task="shell", payload=b'{"command": "date"}'):
    await app.open()
    await session_of(app).store.write(Batch(inserts=[NewJob(id, task, "default", payload)]))
    [claim] = await app.claim()
    await claim.fail("broken", dead=True)


async def over_http(app, client):
    """The store as a remote client."""
    store = open_store(client.url, parts_of(app).runtime.clock)
    await store.open()
    return store


# -- shell commands


async def test_the_payload_of_a_waiting_shell_job_cannot_be_changed(app, http):
    await a_shell_job(app, "s")
    store = await over_http(app, http)
    change = Change("s", State.QUEUED, 0, Patch(payload=EVIL))
    with pytest.raises(InvalidJob, match="is not allowed over HTTP"):
        await store.write(Batch(changes=[change]))
    assert (await app.job("s")).payload == {"command": "date"}
    await store.close()


async def test_a_job_inserted_and_changed_in_one_batch_is_checked(app):
    async with serving(app, allow_shell=["date"]) as client:
        store = await over_http(app, client)
        job = NewJob("s", "shell", "default", b'{"command": "date"}')
        with pytest.raises(InvalidJob, match="is not allowed over HTTP"):
            await store.write(Batch(inserts=[job], changes=[Change("s", State.QUEUED, 0, Patch(payload=EVIL))]))
        assert (await app.jobs()).jobs == []
        assert (await store.write(Batch(inserts=[job]))).inserts[0].outcome == "created"
        await store.close()


@pytest.mark.parametrize("by", ["insert", "change", "route"])
async def test_a_follow_up_is_checked(app, http, by):
    evil = internal.write(Internal(on_dead=FollowUp("shell", "default", msgspec.Raw(EVIL))))
    await app.open()
    if by == "route":
        reply = await http.submit("noop", {}, on_success="os:system")
        assert (reply.status, reply.problem) == (403, "task-refused")
        assert (await http.submit("noop", {}, on_success="holdfast.webhook")).status == 422
    else:
        store = await over_http(app, http)
        await session_of(app).store.write(Batch(inserts=[NewJob("s", "noop", "default", b"{}")]))
        batch = Batch(inserts=[NewJob("t", "noop", "default", b"{}", extra=evil)])
        if by == "change":
            batch = Batch(changes=[Change("s", State.QUEUED, 0, Patch(extra=evil))])
        with pytest.raises(InvalidJob, match="is not allowed over HTTP"):
            await store.write(batch)
        await store.close()
    assert [job.id for job in (await app.jobs()).jobs] == ([] if by == "route" else ["s"])


async def test_a_delete_stores_a_pending_follow_up_that_was_not_written_over_http(app, http):
    await app.open()
    extra = internal.write(Internal(on_dead=FollowUp("os:system", "default", msgspec.Raw(b"{}"))))
    await session_of(app).store.write(Batch(inserts=[NewJob("n", "noop", "default", b"{}", extra=extra)]))
    other = ByHand(app)
    [claim] = await other.claim()
    await other.end(claim, Outcome.dead("broke"))
    assert (await http("DELETE", "/v1/jobs/n")).status in (200, 204)
    [job] = (await app.jobs()).jobs
    assert (job.task, job.meta) == ("os:system", {"follows": "n"})


async def test_a_change_is_refused_if_another_job_has_the_id(app, http):
    await a_shell_job(app, "s")
    change = Change("s", State.QUEUED, 0, Patch(payload=EVIL), "noop")
    assert not (await session_of(app).store.write(Batch(changes=[change]))).changes[0]
    assert (await app.job("s")).payload == {"command": "date"}


async def test_a_change_with_another_expected_task_is_refused(app, http):
    await app.submit("noop", b"{}", json=True, id="n")
    store = await over_http(app, http)
    changes = [Change("n", State.QUEUED, 0, Patch(payload=b'{"a": 1}'), seen) for seen in ("other", "", "noop")]
    answers = [(await store.write(Batch(changes=[change]))).changes for change in changes]
    assert answers == [[False], [False], [True]]
    await store.close()


async def test_jobs_are_replaced_and_retried_through_a_server_in_front_of_another(app, http):
    token = "a-token-of-the-environment"
    await a_dead_one(app, "n", "noop", b"{}")
    async with Holdfast(http.url) as between, serving(between, token=token) as front:
        front.token = token
        assert (await front("POST", "/v1/jobs/n/retry")).status == 200
        for number in (1, 2):
            body = {"type": "noop", "payload": {"number": number}, "replace": True, "delay": 60}
            reply = await front("POST", "/v1/jobs", body, Idempotency_Key="k")
            assert reply.json["payload"] == {"number": number}


async def test_a_shell_job_is_not_replaced(app, http):
    await a_shell_job(app, "s", key="k", fingerprint="f")
    body = {"type": "shell", "payload": {"command": "touch /tmp/evil"}, "replace": True}
    reply = await http("POST", "/v1/jobs", body, Idempotency_Key="k")
    assert reply.problem == "shell-refused"
    assert (await app.job("s")).payload == {"command": "date"}


@pytest.mark.parametrize("path", ["/v1/jobs/s/retry", "/v1/dlq/s/retry"])
async def test_a_dead_shell_job_is_retried_only_where_its_command_is_listed(app, http, path):
    await a_dead_one(app, "s")
    assert (await http("POST", path)).problem == "shell-refused"
    assert (await http("POST", "/v1/dlq/retry", {})).json == {
        "matched": 1,
        "retried": 0,
        "skipped": 1,
        "reasons": {"refused": 1},
    }
    assert (await app.job("s")).state == State.DEAD
    async with serving(app, allow_shell=["date"]) as client:
        assert (await client("POST", path)).status == 200
    assert (await app.job("s")).state == State.QUEUED


@pytest.mark.parametrize("which", [{"filter": {"state": ["dead"]}}, {"ids": ["s", "n"]}])
async def test_a_refused_job_does_not_block_retries_of_others(app, http, which):
    await a_dead_one(app, "s")
    await a_dead_one(app, "n", "noop", b"{}")
    reply = await http("POST", "/v1/bulk", {"action": "retry", **which})
    assert reply.status == 200, reply
    assert (reply.json["matched"], reply.json["changed"], reply.json["skipped"]) == (2, 1, 1)
    assert [(await app.job(id)).state for id in "sn"] == [State.DEAD, State.QUEUED]


@pytest.mark.parametrize("to", ["shell", "os:system"])
async def test_a_job_is_not_moved_to_a_task_that_is_refused(app, http, to):
    await a_dead_one(app, "n", "noop", b'{"command": "touch ran"}')
    reply = await http("POST", "/v1/bulk", {"action": "move", "ids": ["n"], "to": to})
    assert (reply.json["changed"], reply.json["reasons"]) == (0, {"refused": 1})
    assert (await app.job("n")).task == "noop"
    assert (await http("POST", "/v1/bulk", {"action": "move", "ids": ["n"], "to": "other"})).json["changed"] == 1
    assert (await http("POST", "/v1/bulk", {"action": "move", "ids": ["n"]})).status == 422


async def test_a_batch_cannot_change_the_payload_and_then_the_task_to_shell(app):
    async with serving(app, allow_shell=["date"]) as client:
        store = await over_http(app, client)
        await store.write(Batch(inserts=[NewJob("x", "foo", "default", b'{"command": "date"}')]))
        evil = Change("x", State.QUEUED, 0, Patch(payload=EVIL))
        date = Change("x", State.QUEUED, 0, Patch(task="shell", payload=b'{"command": "date"}'))
        with pytest.raises(InvalidJob, match="cannot be moved to the shell task"):
            await store.write(Batch(changes=[evil, Change("x", State.QUEUED, 0, Patch(task="shell"))]))
        assert (await app.job("x")).task == "foo"
        assert (await store.write(Batch(changes=[date, evil]))).changes == [True, False]
        assert ((await app.job("x")).task, (await app.job("x")).payload) == ("shell", {"command": "date"})
        await store.close()


async def test_a_job_is_not_moved_to_shell_because_its_payload_may_be_replaced_meanwhile(app):
    async with serving(app, allow_shell=["date"]) as client:
        await a_dead_one(app, "n", "noop")
        reply = await client("POST", "/v1/bulk", {"action": "move", "ids": ["n"], "to": "shell"})
        assert (reply.json["changed"], reply.json["reasons"]) == (0, {"refused": 1})
        assert (await client("POST", "/v1/bulk", {"action": "move", "ids": ["n"], "to": "holdfast.call"})).status == 422
        assert (await app.job("n")).task == "noop"


async def test_an_expected_task_is_kept_beside_another_change_of_the_job(app, http):
    await app.submit("noop", b"{}", json=True, id="n")
    store = await over_http(app, http)
    changes = [Change("n", State.QUEUED, 0, Patch(payload=b"{}"), seen) for seen in ("other", "noop")]
    assert (await store.write(Batch(changes=changes))).changes == [False, True]
    await store.close()


async def test_a_refused_flow_does_not_block_retries_of_others(app, http):
    allow_shell(parts_of(app))
    flow = Flow("f")
    flow.add(parts_of(app).registry.tasks["shell"].using(max_attempts=1).call("exit 3"))
    made = await app.enqueue_flow(flow)
    await work_off(app)
    await a_dead_one(app, "n", "noop", b"{}")
    assert (await http("POST", f"/v1/jobs/{made.id}/retry")).problem == "shell-refused"
    assert (await app.job(made.id)).state == State.DEAD, "nothing of it was written"
    reply = await http("POST", "/v1/dlq/retry", {})
    assert (reply.status, reply.json["retried"]) == (200, 1)
    assert [(await app.job(id)).state for id in (made.id, f"{made.id}.0", "n")] == [
        State.DEAD, State.DEAD, State.QUEUED,
    ]  # fmt: skip


async def test_a_result_that_is_not_json_adds_no_shell_argument(app, tmp_path):
    """A worker's token may write any bytes as a result, and a flow puts results into the arguments of later jobs."""
    allow_shell(parts_of(app))
    evil = tmp_path / "evil"
    async with serving(app, allow_shell=["cat"]) as client:
        store = await over_http(app, client)
        parent = NewJob("f.0", "noop", "x", b"{}")
        open_payload = b'{"command": "cat", "stdin": {"$result": 0}}'
        child = NewJob("f.1", "shell", "default", open_payload, max_attempts=1, extra=b'{"flow":"f","holes":true}')
        await store.write(Batch(inserts=[parent, child]))
        [claim] = await app.claim("x")
        result = f'"", "command": "touch {evil}"'.encode()
        end = Settlement(
            "f.0",
            (await parts_of(app).handles.record("f.0")).seq,
            claim.fence,
            claim.token,
            1,
            "succeeded",
            "succeeded",
            1,
            result=result,
        )
        assert (await store.write(Batch(settles=[end]))).settles == [True]
        await store.close()
    await work_off(app)
    job = await app.job("f.1")
    assert not evil.exists()
    assert (job.state, "the result of job 0 of the flow" in (job.error or "")) == (State.DEAD, True)


async def test_a_schedule_of_a_shell_command_is_neither_stored_nor_run(app, http):
    await app.open()
    body = {"type": "shell", "payload": {"command": "id"}, "every": 60}
    assert (await http("PUT", "/v1/schedules/s", body)).problem == "shell-refused"
    async with serving(app, allow_shell=["id"]) as client:
        assert (await client("PUT", "/v1/schedules/s", body)).status == 200
    assert (await http("POST", "/v1/schedules/s/run")).problem == "shell-refused"
    assert (await app.jobs()).jobs == []


# -- functions of modules


@pytest.fixture
def shop(monkeypatch):
    """A user module that workers trust."""
    module = ModuleType("shop")
    code = """
ran = []
def sell(): ran.append("sell")
def _wipe(): ran.append("wipe")
class Till:
    def __init__(self): ran.append("till")
    @staticmethod
    def open(): ran.append("open")
class _Safe:
    @staticmethod
    def open(): ran.append("safe")
"""
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "shop", module)
    return module


async def test_module_function_names_are_refused_by_every_write(app, http, shop):
    name = "shop:sell"
    assert (await http.submit(name)).problem == "task-refused"
    batch = {"jobs": [{"type": name, "payload": {}, "key": "k"}]}
    [answer] = (await http("POST", "/v1/jobs/batch", batch)).json["jobs"]
    assert answer["status"] == 403
    schedule = {"type": name, "payload": {}, "every": 60}
    assert (await http("PUT", "/v1/schedules/s", schedule)).problem == "task-refused"
    await a_dead_one(app, "d", name, b"{}")
    assert (await http("POST", "/v1/jobs/d/retry")).problem == "task-refused"
    store = await over_http(app, http)
    with pytest.raises(InvalidJob, match="--trust shop"):
        await store.write(Batch(inserts=[NewJob("x", name, "default", b"{}")]))
    await store.close()
    assert [job.id for job in (await app.jobs()).jobs] == ["d"]


@pytest.mark.parametrize("module", ["my-shop", "2026_shop", "shops.my-shop"])
async def test_a_module_name_that_is_not_an_identifier_is_checked_too(app_url, shop, monkeypatch, module):
    shop.sell.__module__ = module
    monkeypatch.setitem(sys.modules, module, shop)
    async with Holdfast(app_url, imports=[module]) as app:
        async with serving(app) as client:
            assert (await client.submit(f"{module}:sell")).problem == "task-refused"
            assert (await client.submit(f"{module}:_wipe")).problem == "task-refused"
        async with serving(app, trust=[module]) as client:
            assert (await client.submit(f"{module}:sell")).status == 201
        await work_off(app)
    assert shop.ran == ["sell"]


async def test_a_colon_name_that_is_not_a_function_is_accepted(app, http):
    assert (await http.submit("mail:send-now")).status == 201
    assert (await http.submit("urn:mail:send")).status == 201
    assert (await http.submit("my shop:sell")).status == 201


async def test_a_module_with_an_invalid_name_cannot_be_loaded(app_url, shop, monkeypatch):
    shop.sell.__module__ = "my shop"
    monkeypatch.setitem(sys.modules, "my shop", shop)
    async with Holdfast(app_url, imports=["my shop"], refusal_timeout=0) as app:
        job = await app.enqueue("my shop:sell")
        await work_off(app)
        assert (await job.job()).state == State.DEAD
    assert shop.ran == []


async def test_a_function_of_a_trusted_module_is_accepted(app, shop):
    async with serving(app, trust=["shop"]) as client:
        assert (await client.submit("shop:sell")).status == 201
        assert (await client.submit("os:system")).problem == "task-refused"


async def test_a_function_is_refused_even_if_this_process_has_run_it(app_url, shop):
    async with Holdfast(app_url, imports=["shop"]) as app, serving(app) as client:
        await app.enqueue("shop:sell")
        await work_off(app)
        assert shop.ran == ["sell"]
        assert (await client.submit("shop:sell")).problem == "task-refused"


@pytest.mark.parametrize("wrong", ["shop:sell", "shop.", "", "*"])
def test_trust_requires_a_module_name(wrong):
    with pytest.raises(ConfigError, match="takes module names"):
        asgi(Holdfast("memory://"), trust=[wrong])


async def test_a_registered_task_with_a_colon_is_accepted(app, http):
    app.task(lambda: None, name="mail:send")
    assert (await http.submit("mail:send")).status == 201


async def test_only_public_functions_of_a_trusted_module_run(app_url, shop):
    async with Holdfast(app_url, imports=["shop"], refusal_timeout=0) as app:
        names = ["shop:sell", "shop:Till.open", "shop:_wipe", "shop:Till", "shop:_Safe.open", "shop:ran.append"]
        jobs = [await app.enqueue(name) for name in names]
        await work_off(app)
        states = [(await job.job()).state for job in jobs]
        assert shop.ran == ["sell", "open"]
        assert states == [State.SUCCEEDED] * 2 + [State.DEAD] * 4


async def test_a_private_function_or_a_class_is_refused_when_it_is_enqueued(app, shop):
    for what in (shop._wipe, shop.Till):
        with pytest.raises(InvalidJob, match="cannot be found again by a worker"):
            await app.enqueue(what)
    with pytest.raises(UnknownTask, match="private"):
        parts_of(app).registry.find(f"{__name__}:_private")


def _private():
    pass


# -- noop


async def test_noop_accepts_any_payload(app, http):
    reply = await http("POST", "/v1/jobs", {"type": "noop", "payload": {"hello": "world"}}, Idempotency_Key="n")
    assert reply.status == 201
    more = await app.enqueue("noop", 1, 2, three=[3])
    await work_off(app)
    assert (await app.job(reply.json["id"])).state == State.SUCCEEDED
    assert (await more.job()).state == State.SUCCEEDED


async def test_jobs_enqueued_by_event_handlers_bypass_the_policy(app, http):
    made: list[asyncio.Task[object]] = []

    def notify(event):
        if event.job_type == "noop":
            made.append(asyncio.create_task(app.submit("shell", b'{"command": "date"}', json=True)))

    app.on("job_created", notify)
    assert (await http("POST", "/v1/jobs", {"type": "noop", "payload": {}}, Idempotency_Key="1")).status == 201
    assert [handle.id for handle in await asyncio.gather(*made)], "the app's own code may make any job"
    shell = {"type": "shell", "payload": {"command": "date"}}
    assert (await http("POST", "/v1/jobs", shell, Idempotency_Key="2")).problem == "shell-refused"
