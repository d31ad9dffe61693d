"""Sentinels name the primary; after a failover the store goes where they point."""

import asyncio
import time

import pytest

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.testing.build import new_job
from holdfast.testing.verbs import every, insert
from support.redis import Server, wait_for_replica


@pytest.fixture
def watched(start_server, valkey, tmp_path):
    """A primary, its replica, and a sentinel that watches them."""
    primary = start_server()
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


async def test_a_primary_that_no_sentinel_knows_is_told(watched, open_at):
    _, _, sentinel = watched
    with pytest.raises(StoreUnavailable, match="knows no other"):
        await open_at(f"redis+sentinel://127.0.0.1:{sentinel.port}/other?durability=none")
