"""Sentinels name the primary; after a failover the store connects to the new one."""

import asyncio
import time

import pytest

from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.testing.build import new_job
from holdfast.testing.verbs import every, insert
from support.eventually import eventually
from support.redis import Server, wait_for_replica
from support.redis_load import Load
from support.redis_sentinels import Sentinels


@pytest.fixture
def watched(start_server, valkey, tmp_path):
    """A primary, its replica, and a sentinel that watches them."""
    primary = start_server(repl_diskless_sync_delay="0")
    replica = start_server(replicaof=f"127.0.0.1 {primary.port}")
    wait_for_replica(primary)
    sentinel = Server(valkey, tmp_path / "sentinel")
    (sentinel.folder / "sentinel.conf").write_text(
        f"port {sentinel.port}\n"
        f"sentinel monitor mymaster 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds mymaster 300\n"
        "sentinel failover-timeout mymaster 3000\n"
    )
    sentinel.arguments = (str(sentinel.folder / "sentinel.conf"), "--sentinel")
    sentinel.options = {}
    try:
        sentinel.start()
    except RuntimeError as error:
        pytest.skip(f"this server is no sentinel: {error}")
    deadline = time.monotonic() + 20
    while b"slaves=1" not in sentinel.call("INFO", "sentinel"):
        assert time.monotonic() < deadline, "the sentinel does not find the replica"
        time.sleep(0.05)
    yield primary, replica, sentinel
    sentinel.remove()


async def test_the_store_follows_a_failover(watched, open_at):
    primary, replica, sentinel = watched
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/mymaster?durability=none&timeout=2"
    store = await open_at(url)
    await insert(store, new_job("before"))
    for _ in range(200):
        if replica.call("EXISTS", "{holdfast}:ids"):
            break
        await asyncio.sleep(0.01)
    primary.kill()
    async with asyncio.timeout(30):
        while True:
            try:
                await insert(store, new_job("after"))
                break
            except HoldfastError:
                await asyncio.sleep(0.1)
    assert {record.id for record in await every(store)} == {"before", "after"}
    assert replica.call("EXISTS", "{holdfast}:ids") == 1


async def test_a_primary_that_no_sentinel_knows_is_reported(watched, open_at):
    _, _, sentinel = watched
    with pytest.raises(StoreUnavailable, match="does not monitor a primary named 'other'"):
        await open_at(f"redis+sentinel://127.0.0.1:{sentinel.port}/other?durability=none")


@pytest.fixture
def servers(valkey, tmp_path):
    """A primary with two replicas, and a sentinel."""
    made = Sentinels(valkey, tmp_path / "watched", number=1)
    try:
        yield made.start()
    finally:
        made.remove()


async def test_a_planned_failover_under_load_loses_nothing_that_was_acknowledged(servers, caplog):
    """The replaced primary continues and accepts writes, with its own replica, for many seconds."""
    before = servers.primary()
    plain = Load(servers.url("plain", durability="none"))
    replicated = Load(servers.url("replicated", durability="replicated"))
    async with plain, replicated:
        await asyncio.gather(plain.more(50), replicated.more(50))
        servers.sentinels[0].call("SENTINEL", "FAILOVER", "mymaster")
        await eventually(lambda: servers.primary() is not before)
        early = set(plain.acknowledged)
        assert before.call("ROLE")[0] == b"master"
        await asyncio.gather(plain.more(50), replicated.more(50))
    assert not any(replicated.findings().values()), replicated.findings()
    assert plain.acknowledged - early <= plain.stored.keys(), "acknowledged by a primary that was replaced"
    assert plain.findings()["fences given twice"] == 0
    assert "failover of mymaster: the primary was" in caplog.text
    assert "no write was sent after it began" in caplog.text, "writes wait while the sentinel fails over"
