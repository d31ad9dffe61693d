"""Dropped connections, an exhausted pool, deadlocks: clear errors, and automatic recovery."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import Holdfast, OutcomeUnknown, StoreUnavailable
from holdfast.client import heartbeat
from holdfast.core.clock import SystemClock
from holdfast.observe.outages import Outages
from holdfast.store.postgres import PostgresStore, pool
from holdfast.store.postgres.address import from_url as address_of
from holdfast.store.protocol import Batch
from holdfast.testing.build import holder, new_job, succeeded
from holdfast.testing.verbs import claim, every, insert, running
from support.eventually import eventually
from support.inside import session_of
from support.outage import outlasted
from support.postgres import PostgresServer
from support.silent_proxy import SilentProxy, check_lease_outlasts_silence
from support.workers import working


async def cut(sql):
    """End every connection of Holdfast to the server."""
    await sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")


async def cut_while_idle(store, sql):
    """The same, and wait until the store has seen it: requests before that may be lost."""
    idle = list(store._pool._idle)
    await cut(sql)
    await eventually(lambda: all(link.raw.is_closed() for link in idle))


async def until_blocked(sql):
    """Wait until a backend waits for a lock."""

    async def blocked():
        return await sql.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")

    await eventually(blocked)


async def test_a_store_goes_on_after_its_connections_were_cut(store, sql):
    await insert(store, new_job("a"))
    await cut_while_idle(store, sql)
    assert [record.id for record in await every(store)] == ["a"]
    await cut_while_idle(store, sql)
    assert (await insert(store, new_job("b")))[0].outcome == "created"


async def test_a_write_whose_connection_is_cut_meanwhile_is_unknown(store, sql, schema):
    await insert(store, new_job("a"))
    async with sql.transaction():
        await sql.execute(f"LOCK TABLE {schema}.job IN ACCESS EXCLUSIVE MODE")
        writing = asyncio.create_task(insert(store, new_job("b")))
        await until_blocked(sql)
        await cut(sql)
        with pytest.raises(OutcomeUnknown):
            await writing
    assert (await insert(store, new_job("b")))[0].outcome == "created"


async def test_a_listener_is_notified_again_after_its_connection_was_cut(store, sql):
    listener = store.listen(["queue/default"])
    await listener.wait(5.0)
    await cut_while_idle(store, sql)
    await asyncio.wait_for(listener.wait(60.0), 90)  # rings once: something may have been missed
    await eventually(lambda: store._listeners._requested)
    await listener.wait(0.0)  # and once more, for the same reason
    await insert(store, new_job())
    await asyncio.wait_for(listener.wait(60.0), 90)
    listener.close()


async def test_a_worker_goes_on_after_all_connections_were_cut(app, sql):
    async with working(app):
        for n in range(3):
            assert await (await app.add.enqueue(n, 1)).result(timeout=10) == n + 1
            await cut(sql)


async def test_an_exhausted_pool_is_reported_with_advice(server, schema, monkeypatch):
    monkeypatch.setattr(pool, "STATEMENT_TIMEOUT", 0.2)
    store = PostgresStore(f"{server.url}?schema={schema}&pool=1")
    await store.open()
    async with store._pool.link():
        with pytest.raises(StoreUnavailable, match="all 1 connections were busy"):
            await store.now()
    assert await store.now() > 0
    await store.close()


async def test_a_server_without_free_connections_is_reported(store, sql, server, schema):
    role = f"few_{schema}"
    await sql.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")
    with pytest.raises(StoreUnavailable, match="no free connection"):
        await PostgresStore(f"{server.url.replace('postgres@', f'{role}@')}?schema={schema}").open()
    await sql.execute(f"DROP ROLE {role}")


async def test_a_deadlock_between_two_batches_is_resolved_inside(store, sql, schema):
    """A foreign transaction locks rows in another order than ours: our batch is rolled back and repeated."""
    await sql.execute("SET deadlock_timeout = '10s'")
    one, two = await running(store, queue="one"), await running(store, queue="two")
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute(f"SELECT FROM {schema}.job WHERE seq = $1 FOR UPDATE", two.seq)
    settling = asyncio.create_task(store.write(Batch(settles=[succeeded(one), succeeded(two)])))
    await until_blocked(sql)
    # The server finds the deadlock after one second, and undoes ours.
    await sql.execute(f"SELECT FROM {schema}.job WHERE seq = $1 FOR UPDATE", one.seq)
    await transaction.rollback()
    assert list((await settling).settles) == [True, True]


async def test_polling_alone_is_enough(url):
    """Behind a pooler that passes no notification."""
    store = PostgresStore(url)
    await store.open()
    store._listeners._listen = lambda: asyncio.sleep(3600)
    listener = store.listen(["queue/default"])
    await insert(store, new_job())
    await listener.wait(0.05)
    assert len(await claim(store)) == 1
    listener.close()
    await store.close()


async def test_a_job_outlasts_a_server_that_is_away_for_longer_than_its_lease():
    server = await asyncio.to_thread(PostgresServer().start)
    try:
        job = await outlasted(server.url, server)
        assert (job.attempt, job.result) == (1, "kept")
    finally:
        await asyncio.to_thread(server.remove)


async def test_a_heartbeat_gives_up_a_silent_connection_before_its_lease_expires(server, schema, url, monkeypatch):
    await check_lease_outlasts_silence(url, server.port, monkeypatch)


async def test_no_idle_connection_is_used_after_a_statement_without_an_answer(server, schema, url):
    async with SilentProxy(server.port) as proxy:
        store = PostgresStore(address_of(url.replace(f":{server.port}/", f":{proxy.port}/")))
        await store.open()
        await asyncio.gather(*(store.now() for _ in range(3)))  # several connections, idle from now on
        proxy.stop_passing()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await store.now()
        async with asyncio.timeout(60):
            assert await store.now()
        await store.close()


async def test_a_heartbeat_gives_up_a_connection_that_is_silent_from_the_start(server, url, monkeypatch, caplog):
    monkeypatch.setattr(heartbeat, "SHORTEST_PATIENCE", 0.5)
    async with SilentProxy(server.port) as proxy, Holdfast(url) as app:
        await app.stats()  # creates the schema
        proxy.silent = True
        store = PostgresStore(address_of(url.replace(f":{server.port}/", f":{proxy.port}/")))
        outages = Outages(SystemClock())
        one = heartbeat.Heartbeat(
            store, holder("ann", 1.5), frozenset, lambda _known, _reply: True, lambda: None, outages=outages
        )
        one.start()
        await eventually(lambda: proxy.connections == 1)
        proxy.silent = False

        async def registered() -> bool:
            return [seen.holder.id for seen in await session_of(app).store.holders()] == ["ann"]

        await eventually(registered)
        await one.stopped()
        assert "the postgres store did not answer the heartbeat of ann within 0.5 s; check the store" in caplog.text


async def test_a_connection_whose_caller_gives_up_while_it_is_set_up_is_closed(url):
    made = []

    async def connect():
        made.append(await pool._connect(address_of(url)))
        return made[0]

    address = msgspec.structs.replace(address_of(url), connect=connect)
    opening = asyncio.create_task(pool.connect(address, "SELECT pg_sleep(60)"))
    await eventually(lambda: made)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert made[0].is_closed()
