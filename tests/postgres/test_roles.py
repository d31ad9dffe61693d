"""Roles with no more rights than they need, as the guide grants them: a worker, and one that can only enqueue."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from holdfast import ConfigError, Holdfast, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.testing.verbs import every
from support.inside import session_of

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "postgres.md"


def grants(role, schema):
    """What the guide grants to a role of this name, for a role of this test."""
    blocks = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    [block] = [block for block in blocks if f"TO {role};" in block]
    return re.sub(rf"\bTO {role};", f"TO {role}_{schema};", re.sub(r"\bholdfast\b", schema, block))


@pytest_asyncio.fixture
async def role(server, sql, schema, store):
    """Makes a role of the guide's; its URL."""

    async def make(name):
        await sql.execute(f"CREATE ROLE {name}_{schema} LOGIN; {grants(name, schema)}")
        return f"postgresql://{name}_{schema}@127.0.0.1:{server.port}/postgres?schema={schema}"

    yield make
    for name in ("worker", "web"):
        if await sql.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", f"{name}_{schema}"):
            await sql.execute(f"DROP OWNED BY {name}_{schema}; DROP ROLE {name}_{schema}")


async def test_a_worker_does_all_of_its_work(role, store):
    app = Holdfast(await role("worker"), poll=0.1)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with app:
        cursor = (await session_of(app).store.transitions(None, 100)).cursor
        handles = await app.enqueue_many([app.call(add, n, 1) for n in range(20)])
        keyed = await add.using(key="k", tags=["x"], delay=0.01).enqueue(5, 5)
        await Worker(app, until_idle=True).run()
        assert await keyed.result(timeout=10) == 10
        assert [await handle.result(timeout=10) for handle in handles] == list(range(1, 21))
        await app.retry(keyed.id)
        await app.cancel(keyed.id)
        await app.pause("default")
        await app.resume("default")
        assert (await session_of(app).store.transitions(cursor, 1000)).transitions
        assert await session_of(app).store.stats_by_minute(0)
        await session_of(app).store.tidy(100)
        assert all(finding.fine for finding in await session_of(app).store.examine() if "schema" in finding.what)


async def test_a_worker_makes_no_tables(role, sql, schema):
    url = await role("worker")
    await sql.execute(f"DELETE FROM {schema}.migration WHERE version = (SELECT max(version) FROM {schema}.migration)")
    with pytest.raises(ConfigError, match="permission denied"):
        await PostgresStore(url).open()


async def test_a_role_that_may_only_enqueue_can_do_nothing_else(role, store, sql, schema, server):
    url = await role("web")
    web = await asyncpg.connect(url.partition("?")[0])
    id = await web.fetchval(f"SELECT {schema}.enqueue('send', '{{\"to\": \"a\"}}', key => 'k')")
    assert await web.fetchval(f"SELECT {schema}.enqueue('send', '{{\"to\": \"a\"}}', key => 'k')") == id
    async with web.transaction():
        await web.fetchval(f"SELECT {schema}.enqueue('send', queue => 'mail', delay => '1 minute')")
    transaction = web.transaction()
    await transaction.start()
    await web.fetchval(f"SELECT {schema}.enqueue('never')")
    await transaction.rollback()
    assert sorted(record.task for record in await every(store)) == ["send", "send"]
    claiming = (
        "ask_holder => 'me', ask_about => '{}', ask_lease => 10, ask_queues => '{default}', ask_limit => 1,"
        " ask_token => 1, ask_busy => false"
    )
    for statement in (
        f"SELECT * FROM {schema}.job",
        f"DELETE FROM {schema}.job",
        f"INSERT INTO {schema}.record VALUES ('pause', 'default', '', 1)",
        f"SELECT * FROM {schema}.write({claiming})",
        f"CREATE TABLE {schema}.mine ()",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await web.fetch(statement)
    await web.close()
