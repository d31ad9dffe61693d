"""The conformance suite for SQLite."""

import sqlite3
import sys

import pytest

from holdfast.testing.conformance import ManualTimeHarness, conformance_suite
from support.conforming import beside_the_reference

sqlite = pytest.importorskip("holdfast.store.sqlite")


class SqliteHarness(ManualTimeHarness):
    features = ManualTimeHarness.features | {"reboots", "write_count"}
    if sys.platform == "linux":
        features |= {"reliable_hints"}

    def __init__(self, folder):
        super().__init__(folder)
        self.path = folder / "jobs.db"
        self._watcher = None

    def connect(self):
        return sqlite.SqliteStore(str(self.path), clock=self.clock)

    async def reboot(self, store):
        self.clock.reboot()
        return await self.reopen(store)

    async def write_count(self):
        self._watcher = self._watcher or sqlite3.connect(self.path)
        return self._watcher.execute("PRAGMA data_version").fetchone()[0]

    async def close(self):
        if self._watcher is not None:
            self._watcher.close()
        await super().close()


TestSqlite = conformance_suite(SqliteHarness)
TestSqliteBesideTheReference = beside_the_reference(SqliteHarness, 100)
