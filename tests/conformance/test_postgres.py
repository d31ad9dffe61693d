"""The conformance suite for Postgres, on the newest available server and on the oldest."""

import itertools
from typing import ClassVar

import pytest

from holdfast.core.clock import MICROS
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance import ManualTimeHarness, conformance_suite
from support.conforming import beside_the_reference
from support.postgres import PostgresServer, installed

psycopg = pytest.importorskip("psycopg")
postgres = pytest.importorskip("holdfast.store.postgres")
POOL = pytest.importorskip("holdfast.store.postgres.address").POOL

_numbers = itertools.count(1)
_servers: dict[int, PostgresServer] = {}
_connections: dict[int, psycopg.Connection] = {}
"""For statements of the harness: a new connection takes longer than most tests, and an async one ends with its loop."""


def server(major):
    """One server a version for the whole run."""
    if major not in _servers:
        _servers[major] = PostgresServer(major).start()
        _connections[major] = psycopg.connect(_servers[major].url, autocommit=True)
    return _servers[major]


@pytest.fixture(scope="module", autouse=True)
def end_the_servers():
    yield
    for connection in _connections.values():
        connection.close()
    for each in _servers.values():
        each.remove()
    _connections.clear()
    _servers.clear()
    PostgresHarness.swept.clear()


class FileClock(ManualClock):
    """A manual clock that the server can read. Its wall can jump like a client's; the server's own time does not."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self._wall_was_set = 0
        self._write()

    def _write(self):
        self.path.write_text(str(self._now - self._wall_was_set))

    def advance(self, seconds):
        super().advance(seconds)
        self._write()

    def jump_wall(self, seconds):
        super().jump_wall(seconds)
        self._wall_was_set += round(seconds * MICROS)


class PostgresHarness(ManualTimeHarness):
    """The server's clock is the only one that this store reads; here it reads a file."""

    major = max(installed(), default=0)
    features = ManualTimeHarness.features | {"write_count", "reliable_hints"}
    pool = POOL
    swept: ClassVar[dict[int, list[str]]] = {}
    """Schemas that are empty again, by version: making one takes longer than most tests."""

    def __init__(self, folder):
        super().__init__(folder)
        self.server = server(self.major)
        free = self.swept.setdefault(self.major, [])
        self._made = bool(free)
        self.schema = free.pop() if free else f"t{next(_numbers)}"
        self.clock = FileClock(self.server.folder / f"clock-{self.schema}")

    def connect(self):
        return postgres.PostgresStore(f"{self.server.url}?schema={self.schema}&pool={self.pool}")

    async def make(self):
        if not self._made:
            store = self.connect()
            await store.migrate()
            await store.close()
            self._run(
                f"CREATE OR REPLACE FUNCTION {self.schema}.micros() RETURNS bigint LANGUAGE sql VOLATILE AS"
                f" $$ SELECT pg_read_file('{self.clock.path}')::bigint $$"
            )
        return await super().make()

    async def write_count(self):
        return int(self._run("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()[0])

    async def close(self):
        await super().close()
        tables = (
            "job",
            "ended",
            "key",
            "holder",
            "record",
            "output",
            "transition",
            "minute",
            "limiter",
            "notice",
            "share",
        )
        swept = [f"DELETE FROM {self.schema}.{table}" for table in tables]
        self._run("; ".join([*swept, f"SELECT setval('{self.schema}.watched_until', 1)"]))
        self.swept[self.major].append(self.schema)

    def _run(self, statement):
        return _connections[self.major].execute(statement)


TestPostgres = conformance_suite(PostgresHarness)


class OneConnectionHarness(PostgresHarness):
    """Every new connection has the server read its functions anew, which takes longer than most steps."""

    pool = 1


TestPostgresBesideTheReference = beside_the_reference(OneConnectionHarness, 25)


class OldestHarness(PostgresHarness):
    major = min(installed(), default=0)


if OldestHarness.major != PostgresHarness.major:
    TestOldestPostgres = pytest.mark.extended(conformance_suite(OldestHarness))
