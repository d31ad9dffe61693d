"""Which jobs may be written over HTTP: every way to write one passes the same check."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from holdfast import ConfigError, Holdfast, InvalidJob, State, UnknownTask
from holdfast.http import asgi
from holdfast.job import Change, NewJob, Patch
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch
from support.http import serving
from support.workers import work_off

EVIL = b'{"command": "touch /tmp/evil"}'


async def a_shell_job(app, id, **fields):
    """One that somebody with the store's own URL has made."""
    await app.open()
    job = NewJob(id, "shell", "default", b'{"command": "date"}', **fields)
    assert (await app.session.store.write(Batch(inserts=[job]))).inserts[0].outcome == "created"


async def a_dead_one(app, id, task="shell", payload=b'{"command": "date"}'):
    await app.open()
    await app.session.store.write(Batch(inserts=[NewJob(id, task, "default", payload)]))
    [claim] = await app.claim()
    await claim.fail("broken", dead=True)


async def over_http(app, client):
    """The store as another Holdfast reaches it."""
    store = open_store(client.url, app.clock)
    await store.open()
    return store


# -- shell commands


async def test_the_payload_of_a_waiting_shell_job_cannot_be_changed(app, http):
    await a_shell_job(app, "s")
    store = await over_http(app, http)
    change = Change("s", State.QUEUED, 0, Patch(payload=EVIL))
    with pytest.raises(InvalidJob, match="shell jobs are refused over HTTP"):
        await store.write(Batch(changes=[change]))
    assert (await app.job("s")).payload == {"command": "date"}
    await store.close()


async def test_a_job_that_is_made_and_changed_in_one_batch_is_checked(app):
    async with serving(app, allow_shell=["date"]) as client:
        store = await over_http(app, client)
        job = NewJob("s", "shell", "default", b'{"command": "date"}')
        with pytest.raises(InvalidJob, match="shell jobs are refused over HTTP"):
            await store.write(Batch(inserts=[job], changes=[Change("s", State.QUEUED, 0, Patch(payload=EVIL))]))
        assert (await app.jobs()).jobs == []
        assert (await store.write(Batch(inserts=[job]))).inserts[0].outcome == "created"
        await store.close()


async def test_a_change_of_a_job_that_another_got_the_id_of_is_not_made(app, http):
    await a_shell_job(app, "s")
    change = Change("s", State.QUEUED, 0, Patch(payload=EVIL), "noop")
    assert not (await app.session.store.write(Batch(changes=[change]))).changes[0]
    assert (await app.job("s")).payload == {"command": "date"}


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
    assert (await http("POST", "/v1/dlq/retry", {})).json == {"retried": 0}
    assert (await app.job("s")).state == State.DEAD
    async with serving(app, allow_shell=["date"]) as client:
        assert (await client("POST", path)).status == 200
    assert (await app.job("s")).state == State.QUEUED


async def test_a_schedule_of_a_shell_command_is_neither_made_nor_run_at_once(app, http):
    await app.open()
    body = {"type": "shell", "payload": {"command": "id"}, "every": 60}
    assert (await http("PUT", "/v1/schedules/s", body)).problem == "shell-refused"
    async with serving(app, allow_shell=["id"]) as client:
        assert (await client("PUT", "/v1/schedules/s", body)).status == 200
    assert (await http("POST", "/v1/schedules/s/run")).problem == "shell-refused"
    assert (await app.jobs()).jobs == []


# -- names of functions


@pytest.fixture
def shop(monkeypatch):
    """A module of the user's, which workers trust."""
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


async def test_a_name_of_a_function_is_refused_on_every_way_to_write_a_job(app, http, shop):
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


async def test_a_name_of_a_trusted_module_is_taken(app, shop):
    async with serving(app, trust=["shop"]) as client:
        assert (await client.submit("shop:sell")).status == 201
        assert (await client.submit("os:system")).problem == "task-refused"


@pytest.mark.parametrize("wrong", ["shop:sell", "shop.", "", "*"])
def test_what_is_no_module_cannot_be_trusted(wrong):
    with pytest.raises(ConfigError, match="takes the name of a module"):
        asgi(Holdfast("memory://"), trust=[wrong])


async def test_a_task_that_is_registered_with_a_colon_in_its_name_is_taken(app, http):
    app.task(lambda: None, name="mail:send")
    assert (await http.submit("mail:send")).status == 201


async def test_only_public_functions_of_a_trusted_module_run(app_url, shop):
    async with Holdfast(app_url, imports=["shop"], max_attempts=1) as app:
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
        app.registry.find(f"{__name__}:_private")


def _private():
    pass


# -- noop


async def test_noop_takes_any_payload(app, http):
    reply = await http("POST", "/v1/jobs", {"type": "noop", "payload": {"hello": "world"}}, Idempotency_Key="n")
    assert reply.status == 201
    more = await app.enqueue("noop", 1, 2, three=[3])
    await work_off(app)
    assert (await app.job(reply.json["id"])).state == State.SUCCEEDED
    assert (await more.job()).state == State.SUCCEEDED
