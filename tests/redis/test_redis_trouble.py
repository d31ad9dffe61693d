"""A server in trouble: clear errors, nothing half done, and automatic recovery."""

import asyncio
import logging
import signal

import pytest

from holdfast import Holdfast, StoreRefused, Worker
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError, JobExists, OutcomeUnknown, StoreUnavailable
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, holder, new_job, succeeded
from holdfast.testing.verbs import claim, claim_one, every, insert, settle
from support.eventually import eventually
from support.outage import outlasted
from support.silent_proxy import check_lease_outlasts_silence
from support.workers import working


async def test_scripts_are_sent_again_after_a_flush(store, server):
    await insert(store, new_job("0"))
    for n in range(1, 3):
        server.call("SCRIPT", "FLUSH")
        assert len(await every(store)) == 1
        server.call("SCRIPT", "FLUSH")
        [record] = await claim(store)
        server.call("SCRIPT", "FLUSH")
        await store.write(Batch(settles=[succeeded(record, keep=0.0)], inserts=[new_job(f"{n}")]))


async def test_a_full_server_refuses_new_jobs_and_lets_others_finish(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none"))
    await insert(store, *(new_job(f"{n}", payload=b"x" * 1000) for n in range(200)))
    server.call("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        await insert(store, new_job("too much"))
    [record] = await claim(store)
    assert await settle(store, succeeded(record, keep=0.0))
    assert [r.id for r in await claim(store, limit=2)] == ["1", "2"]
    server.call("CONFIG", "SET", "maxmemory", "0")
    await insert(store, new_job("welcome"))


async def test_a_full_server_refuses_the_jobs_of_a_mixed_batch_alone(start_server):
    server = start_server()
    app = Holdfast(server.url(durability="none"), retention=0)

    @app.task
    async def work() -> None:
        pass

    async with app:
        await asyncio.gather(*(work.enqueue() for _ in range(50)))
        server.call("CONFIG", "SET", "maxmemory", "1mb")
        async with working(app, concurrency=10):

            async def all_done() -> bool:
                with pytest.raises(StoreUnavailable):
                    await work.enqueue()
                return not (await app.jobs()).jobs

            await eventually(all_done)


async def test_a_read_only_replica_is_refused_with_the_reason(start_server, open_at):
    primary = start_server()
    replica = start_server(replicaof=f"127.0.0.1 {primary.port}")
    with pytest.raises(StoreRefused, match="read-only replica"):
        await open_at(replica.url(durability="none"))


async def test_a_server_that_becomes_a_replica_is_left_and_found_again(start_server, open_at):
    primary, server = start_server(), start_server()
    store = await open_at(server.url(durability="none"))
    server.call("REPLICAOF", "127.0.0.1", primary.port)
    with pytest.raises(StoreUnavailable, match="read-only replica"):
        await insert(store, new_job("a"))
    server.call("REPLICAOF", "NO", "ONE")
    await insert(store, new_job("a"))


async def test_a_server_that_stops_answering_is_noticed_and_found_again(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none", timeout="0.2"))
    await insert(store, new_job("a"))
    server.signal(signal.SIGSTOP)
    with pytest.raises(OutcomeUnknown, match="no answer within"):
        await insert(store, new_job("b"))
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        await store.get(["a"])
    server.signal(signal.SIGCONT)

    async def answers() -> bool:
        try:
            return (await store.get(["a"]))[0] is not None
        except StoreUnavailable:
            return False

    await eventually(answers)
    assert [answer.outcome for answer in await insert(store, new_job("b"))] == ["created"]


async def test_a_job_outlasts_a_server_that_is_away_for_longer_than_its_lease(start_server):
    server = start_server(appendonly="yes", appendfsync="always")
    job = await outlasted(server.url(), server)
    assert (job.attempt, job.result) == (1, "kept")


@pytest.mark.extended  # a whole lease has to run out
async def test_a_heartbeat_gives_up_a_silent_connection_before_its_lease_expires(start_server, monkeypatch):
    server = start_server()
    await check_lease_outlasts_silence(server.url(durability="none"), server.port, monkeypatch)


async def test_a_cancelled_heartbeat_leaves_the_other_calls_of_its_connection_alone(store):
    await insert(store, new_job("before"))
    writing = asyncio.create_task(store.write(Batch([new_job("kept"), new_job("too")])))
    heartbeat = asyncio.create_task(store.heartbeat([holder()]))
    await asyncio.sleep(0)  # both are sent
    heartbeat.cancel()
    await asyncio.wait([heartbeat])
    assert heartbeat.cancelled()
    assert [inserted.id for inserted in (await writing).inserts] == ["kept", "too"]


async def test_leases_are_renewed_on_a_server_that_is_full(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none"))
    await insert(store, new_job("x"))
    await claim(store, "ann")
    server.call("CONFIG", "SET", "maxmemory", "1")
    [heartbeat] = await store.heartbeat([holder("ann")])
    assert [held.id for held in heartbeat.held] == ["x"]
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        await insert(store, new_job("too much"))


async def test_an_idle_worker_wakes_after_its_server_was_restarted(start_server):
    server = start_server(appendonly="yes", appendfsync="always")
    app = Holdfast(server.url())
    ran = asyncio.Event()

    @app.task
    async def work() -> None:
        ran.set()

    async with app, working(app, poll=0.1):
        server.kill()
        server.start()

        async def enqueued() -> bool:
            try:
                await work.enqueue()
            except (StoreUnavailable, OutcomeUnknown):
                return False
            return True

        await eventually(enqueued)
        await asyncio.wait_for(ran.wait(), 90)


async def test_an_idle_worker_is_not_silent_after_any_trouble(start_server):
    """Each kind of trouble occurs while the worker is idle, and ends: the next job runs."""
    server, primary = start_server(), start_server()
    app = Holdfast(server.url(durability="none", timeout="1"))
    ran: list[str] = []

    @app.task
    async def work(after: str) -> None:
        ran.append(after)

    async def cut() -> None:
        server.call("CLIENT", "KILL", "SKIPME", "yes")

    async def flushed() -> None:
        server.call("SCRIPT", "FLUSH")

    async def replica() -> None:
        server.call("REPLICAOF", "127.0.0.1", primary.port)
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            await work.enqueue("never")
        server.call("REPLICAOF", "NO", "ONE")

    async def full() -> None:
        server.call("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            await work.enqueue("never")
        server.call("CONFIG", "SET", "maxmemory", "0")

    troubles = {"flushed": flushed, "cut": cut, "replica": replica, "full": full, "cut again": cut}
    async with app, working(app, poll=0.1):
        for name, trouble in troubles.items():
            await trouble()

            async def enqueued(name: str = name) -> bool:
                try:
                    await work.using(id=name).enqueue(name)
                except JobExists:
                    return True  # the one before, whose answer was lost
                except (StoreUnavailable, OutcomeUnknown):
                    return False
                return True

            await eventually(enqueued)
            await eventually(lambda name=name: name in ran)
    assert ran == list(troubles)


async def test_hints_come_again_after_the_listening_connection_was_lost(store, server, open_at, url):
    listener = store.listen(["queue/default"])
    await listener.wait(2.0)  # it listens
    server.call("CLIENT", "KILL", "TYPE", "pubsub")
    await listener.wait(5.0)  # it listens again
    other = await open_at(url)
    await insert(other, new_job())
    await asyncio.wait_for(listener.wait(60.0), 90)
    listener.close()


async def test_an_evicting_policy_is_refused_with_the_setting_to_change(start_server, open_at):
    for policy in ("allkeys-lru", "allkeys-random"):
        server = start_server(maxmemory_policy=policy)
        with pytest.raises(ConfigError, match="CONFIG SET maxmemory-policy noeviction"):
            await open_at(server.url(durability="none"))
    server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await open_at(server.url(durability="none"))


async def test_no_append_only_file_is_a_warning_that_can_be_silenced(start_server, caplog):
    server = start_server()
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with Holdfast(server.url(durability="none")):
            assert "append-only" not in caplog.text
        async with Holdfast(server.url()):
            assert caplog.text.count("append-only") == 1


async def test_a_password_that_is_missing_or_wrong_is_reported(start_server, open_at):
    server = start_server(requirepass="secret")
    plain = server.url(durability="none")
    with pytest.raises(ConfigError, match="password"):
        await open_at(plain)
    with pytest.raises(ConfigError, match="password") as raised:
        await open_at(plain.replace("//", "//:guess@"))
    assert "guess" not in str(raised.value)
    store = await open_at(plain.replace("//", "//:secret@"))
    await insert(store, new_job("a"))


async def test_a_user_without_info_may_still_work(start_server, open_at, caplog):
    server = start_server()
    server.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info", "-config")
    with caplog.at_level(logging.INFO, "holdfast"):
        store = await open_at(server.url().replace("//", "//app:pw@"))
    assert "may not run INFO" in caplog.text
    await insert(store, new_job("a"))
    await settle(store, succeeded(await claim_one(store)))


async def test_no_server_at_all_is_a_clear_error(open_at):
    store = open_store("redis://127.0.0.1:1?durability=none", SystemClock())
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await store.open()


async def test_a_unix_socket_works(start_server, open_at, tmp_path):
    server = start_server(unixsocket=str(tmp_path / "s"))
    store = await open_at(f"unix://{tmp_path}/s?prefix=x&durability=none")
    await insert(store, new_job("a"))
    assert [record.id for record in (await store.write(Batch(asks=[ask()]))).asks[0].records] == ["a"]
    assert server.keys("x")


async def test_a_database_number_is_honoured(start_server, open_at):
    server = start_server()
    store = await open_at(f"redis://127.0.0.1:{server.port}/3?durability=none")
    await insert(store, new_job("a"))
    assert "db3:" in server.call("INFO", "keyspace").decode()


async def test_successive_waits_keep_the_listening_connection(store, server, open_at, url):
    other = await open_at(url)
    keeper = store.listen(["queue/never"])
    await keeper.wait(2.0)
    connection = store._listeners._connection
    for n in range(30):
        await insert(other, new_job(f"{n}"))
        listener = store.listen([f"job/{n}"])
        await listener.wait(2.0)  # it listens
        await settle(other, succeeded(await claim_one(other)))
        await asyncio.wait_for(listener.wait(60.0), 90)
        listener.close()
    assert store._listeners._connection is connection
    keeper.close()


async def test_a_worker_whose_user_may_only_read_ends(server, url):
    server.call("ACL", "SETUSER", "reader", "on", ">x", "~*", "&*", "+@all", "-@write", "-@scripting")
    with pytest.raises(ConfigError, match="NOPERM"):
        async with Holdfast(url.replace("redis://", "redis://reader:x@")) as app:
            await Worker(app).run()


async def test_a_primary_that_was_made_a_replica_refuses(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none"))
    server.call("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreRefused, match="read-only replica"):
        await insert(store, new_job("a"))
