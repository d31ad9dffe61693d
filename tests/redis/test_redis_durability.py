"""Durability: what waits for the disk or a replica, and what a crash, a restart or a failover loses."""

import asyncio
import os
import shutil
from collections import Counter

import pytest

from holdfast import Holdfast
from holdfast.core.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.store.protocol import Batch
from holdfast.testing.build import holder, new_job, released, says, succeeded
from holdfast.testing.verbs import claim, claim_one, every, insert, job, note, settle
from support.eventually import eventually
from support.redis import Server, redis_binary, wait_for_replica
from support.workers import working

RESTARTS = int(os.environ.get("HOLDFAST_RESTARTS", "4"))
"""HOLDFAST_RESTARTS=50 for the long version."""


async def test_fsync_waits_for_the_disk(start_server, open_at):
    server = start_server(appendonly="yes", appendfsync="always")
    store = await open_at(server.url(durability="fsync"))
    for _ in range(2):  # once for the server to learn the scripts, once to be counted
        server.call("CONFIG", "RESETSTAT")
        await insert(store, new_job())
        assert await settle(store, succeeded(await claim_one(store)))
    assert int(server.info("cmdstat_waitaof").partition("calls=")[2].partition(",")[0]) == 2  # not for the claim


async def test_fsync_without_an_append_only_file_is_refused(start_server, open_at):
    server = start_server()
    with pytest.raises(ConfigError, match="appendonly yes"):
        await open_at(server.url(durability="fsync"))


async def test_fsync_is_refused_where_the_server_cannot(start_server, open_at):
    binary = redis_binary()
    if binary is None:
        pytest.skip("no Redis 7.0 here")
    server = start_server(binary, appendonly="yes")
    if server.info("redis_version") >= "7.2":
        pytest.skip("this Redis has WAITAOF")
    with pytest.raises(ConfigError, match="WAITAOF"):
        await open_at(server.url(durability="fsync"))


async def test_replicated_waits_for_a_replica(start_server, open_at):
    primary = start_server(repl_diskless_sync_delay="0")
    with pytest.raises(StoreUnavailable, match="no replica"):
        await open_at(primary.url(durability="replicated"))
    replica = start_server(replicaof=f"127.0.0.1 {primary.port}")
    wait_for_replica(primary)
    store = await open_at(primary.url(durability="replicated", timeout="2"))
    await insert(store, new_job("a"))
    assert replica.call("HGET", "{test}:ids", "a") == b"1"
    replica.stop()
    with pytest.raises(OutcomeUnknown, match="replicated"):
        await insert(store, new_job("b"))


async def test_a_failover_that_rolls_back_never_confuses_two_claims(start_server, open_at, tmp_path):
    """The old primary makes a claim that the promoted replica never gets, which then makes its own."""
    primary = start_server()
    store = await open_at(primary.url(durability="none"))
    await insert(store, new_job("a"))
    primary.call("SAVE")
    lost = await claim_one(store, "ann")
    replica = Server(primary.binary, tmp_path / "replica", save="")
    shutil.copy(primary.folder / "dump.rdb", tmp_path / "replica" / "dump.rdb")
    replica.start()
    try:
        after = await open_at(replica.url(durability="none"))
        new = await claim_one(after, "bob")
        assert (new.id, new.seq) == (lost.id, lost.seq)
        assert new.fence > lost.fence
        assert new.token != lost.token
        assert not await settle(after, succeeded(lost))
        assert not await settle(after, released(lost))
        assert not await note(after, says(lost, progress=b"1"))
        [heartbeat] = await after.heartbeat([holder("ann")])
        assert heartbeat.held == ()
        assert await job(after, "a") == new
        assert await settle(after, succeeded(new))
        await after.close()
    finally:
        replica.remove()


async def test_fences_rise_from_one_run_of_a_server_to_the_next(start_server, open_at):
    server = start_server(appendonly="yes", appendfsync="always")
    await insert(await open_at(server.url()), new_job("a"))
    fences = []
    for _ in range(3):
        store = await open_at(server.url())
        record = await claim_one(store)
        fences.append(record.fence)
        assert await settle(store, released(record))
        server.kill()
        server.start()
    assert fences[1] > fences[0] + 1000
    assert fences[2] > fences[1] + 1000
    assert fences[0] == 1
    assert max(fences) < 2**53


async def test_jobs_are_claimed_where_info_is_forbidden(start_server, open_at):
    server = start_server()
    server.call("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info")
    store = await open_at(server.url(durability="none").replace("redis://", "redis://app:pw@"))
    await insert(store, new_job())
    assert (await claim_one(store)).fence == 1


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
async def test_a_server_killed_again_and_again_under_load_loses_no_more_than_is_said(start_server, appendfsync):
    """`always`: every acknowledged job ends, and ends once. `everysec`: a server that is syncing holds back what it has
    answered for, so that SIGKILL may take what was acknowledged within the two seconds before it; the rest ends.
    """
    server = start_server(appendonly="yes", appendfsync=appendfsync)
    app = Holdfast(server.url(timeout="2"), lease=2.0, retry_base=0.01, retry_jitter=0.0, poll=0.1)
    succeeded_once: Counter[str] = Counter()
    app.on("job_succeeded", lambda event: succeeded_once.update([event.job_id]))
    acknowledged: dict[str, float] = {}
    kills: list[float] = []
    runs: Counter[str] = Counter()
    stop = asyncio.Event()
    now = asyncio.get_running_loop().time

    @app.task(max_attempts=0)
    async def work(name: str) -> None:
        runs[name] += 1

    async def produce(number: int) -> None:
        n = 0
        while not stop.is_set():
            n += 1
            name = f"{number}-{n}"
            try:
                await work.using(id=name).enqueue(name)
            except HoldfastError:
                await asyncio.sleep(0.02)
            else:
                acknowledged[name] = now()
            await asyncio.sleep(0.002)

    async with app:
        async with working(app, concurrency=20, grace=1.0):
            producers = [asyncio.create_task(produce(number)) for number in range(5)]
            for _ in range(RESTARTS):
                enough = len(acknowledged) + 50
                await eventually(lambda: len(acknowledged) >= enough, limit=20.0)  # noqa: B023  # awaited at once
                await asyncio.to_thread(server.kill)
                kills.append(now())
                await asyncio.to_thread(server.start)
            stop.set()
            await asyncio.gather(*producers)
            async with asyncio.timeout(30):
                while True:
                    try:
                        stats = await app.stats()
                        waiting = sum(n for q in stats.queues for state, n in q.counts.items() if state != "succeeded")
                    except HoldfastError:
                        waiting = -1
                    if waiting == 0:
                        break
                    await asyncio.sleep(0.05)
        there: list = []
        cursor = None
        while True:
            page = await app.jobs(limit=500, cursor=cursor)
            there += page.jobs
            cursor = page.cursor
            if cursor is None:
                break
    states = Counter(each.state for each in there)
    lost = acknowledged.keys() - {each.id for each in there}
    print(f"{appendfsync}: {len(acknowledged)} acknowledged, {len(lost)} lost, {RESTARTS} restarts")
    assert set(states) == {"succeeded"}
    assert acknowledged.keys() - lost <= succeeded_once.keys() <= runs.keys()
    if appendfsync == "always":
        assert lost == set()
        assert set(succeeded_once.values()) == {1}
    for name in lost:
        at = acknowledged[name]
        assert any(at <= kill <= at + 2.0 for kill in kills), f"{name} was acknowledged long before the server died"


async def test_a_crash_of_everything_loses_no_more_than_the_policy_says(start_server, open_at):
    """What a power cut does to an append-only file, by hand: its end is missing. The rest is loaded, whole batches."""
    server = start_server(appendonly="yes", appendfsync="everysec")
    store = await open_at(server.url())
    for n in range(20):
        await store.write(Batch(inserts=[new_job(f"{n}-{m}") for m in range(5)]))
    await store.close()
    server.kill()
    [log] = (server.folder / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 100)
    server.start()
    store = await open_at(server.url())
    found = Counter(record.id.partition("-")[0] for record in await every(store))
    assert found == {f"{n}": 5 for n in range(19)}  # the last batch is gone as a whole, nothing is half there
    assert len(await claim(store, limit=200)) == 95
