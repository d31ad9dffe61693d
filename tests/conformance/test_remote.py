"""The conformance suite for remote stores, over servers with different stores."""

import pytest
from test_bucket import BucketHarness
from test_postgres import PostgresHarness, end_the_servers  # noqa: F401  # the fixture ends what this module starts
from test_redis import ValkeyHarness
from test_sqlite import SqliteHarness

from holdfast import Holdfast
from holdfast.store.open import open_store
from holdfast.testing.conformance import ManualTimeHarness, conformance_suite
from support.conforming import WHOLE, beside_the_reference, some_topics
from support.serving import Serving

pytest.importorskip("aiohttp")


class OverHttp(ManualTimeHarness):
    """A server on the test's own loop, in front of another harness's store; its time is that one's."""

    behind: type[ManualTimeHarness]
    lacks = frozenset({"transactional_completion"})

    def __init__(self, folder):
        super().__init__(folder)
        self.inner = self.behind(folder)
        self.clock = self.inner.clock
        self.serving = None

    def connect(self):
        return open_store(self.serving.url, self.clock)

    async def make(self):
        made = await self.inner.make()
        await made.close()
        await self._serve()
        return await super().make()

    async def _serve(self):
        behind = self.inner.connect()
        self.inner._opened.append(behind)  # for a harness that must move with its stores as time passes
        # Tests read records of every kind, also the server's own.
        self.serving = await Serving(Holdfast(behind, clock=self.clock), declared=(), checks=False).start()

    async def pass_time(self, seconds):
        await self.inner.pass_time(seconds)

    async def reopen(self, store):
        """Both sides are restarted."""
        await store.close()
        await self.serving.stop()
        await self._serve()
        return await self._open(self.connect())

    async def reboot(self, store):
        self.clock.reboot()
        return await self.reopen(store)

    async def write_count(self):
        return await self.inner.write_count()

    async def close(self):
        await super().close()
        if self.serving is not None:
            await self.serving.stop()
        await self.inner.close()


def over_http(harness):
    features = harness.features - {"reliable_hints"}
    return type(f"{harness.__name__}OverHttp", (OverHttp,), {"behind": harness, "features": features})


THROUGH = ("TestLeases", "TestWaking", "TestTransitions", "TestPages", "TestOutput")
"""What depends on the store behind beyond that: its clock, its listeners and its cursors."""
OverSqlite, OverPostgres, OverValkey, OverFolder = map(
    over_http, (SqliteHarness, PostgresHarness, ValkeyHarness, BucketHarness)
)

TestRemoteSqlite = conformance_suite(OverSqlite)
TestRemoteSqliteBesideTheReference = beside_the_reference(OverSqlite, 20)

# What is behind is held to the same elsewhere; here it has to pass through.
TestRemotePostgres = pytest.mark.extended(some_topics(OverPostgres, *THROUGH))
TestRemoteValkey = pytest.mark.extended(some_topics(OverValkey, *THROUGH))
TestRemoteFolder = pytest.mark.extended(some_topics(OverFolder, *THROUGH))
if WHOLE:
    TestRemotePostgresBesideTheReference = beside_the_reference(OverPostgres, 10)
    TestRemoteValkeyBesideTheReference = beside_the_reference(OverValkey, 20)
    TestRemoteFolderBesideTheReference = beside_the_reference(OverFolder, 10)
