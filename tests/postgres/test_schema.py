"""The schema: versions, concurrent openers, roles that may not make tables, and what is refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import asyncpg
import pytest

from holdfast import ConfigError, StoreUnavailable
from holdfast.core.clock import SystemClock
from holdfast.store.open import open_store
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres import schema as steps
from holdfast.store.postgres.address import from_url
from holdfast.testing.build import new_job
from holdfast.testing.verbs import claim, insert
from support.second_step import second_step

NEXT = """
ALTER TABLE holdfast.key ADD COLUMN note text;
CREATE INDEX key_noted ON holdfast.key (note) WHERE note IS NOT NULL;
"""


def test_the_latest_version_is_that_of_the_newest_file():
    assert max(steps.steps()) == steps.LATEST
    assert list(steps.steps()) == list(range(1, steps.LATEST + 1))


async def test_many_openers_at_once_migrate_once(url, sql, schema):
    stores = [PostgresStore(url) for _ in range(8)]
    applied = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(map(len, applied)) == [0] * 7 + [steps.LATEST]
    assert await sql.fetchval(f"SELECT count(*) FROM {schema}.migration") == steps.LATEST
    for store in stores:
        await store.close()


async def test_the_dumped_sql_makes_the_same_schema(url, sql, schema):
    store = PostgresStore(url)
    assert await store.missing() == list(range(1, steps.LATEST + 1))
    await sql.execute(steps.dump(schema))
    assert await store.missing() == []
    assert await store.migrate() == []
    await insert(store, new_job())
    assert len(await claim(store)) == 1
    found = await store.examine()
    assert all(finding.fine for finding in found if "index" in finding.what or "unfinished" in finding.what)
    await store.close()


async def shape(sql, schema):
    """Columns, indexes and functions of a schema, without its name."""
    found = await sql.fetch(
        "SELECT c.relname || '.' || a.attname AS name, format_type(a.atttypid, a.atttypmod) AS said"
        " FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid WHERE c.relnamespace = $1::text::regnamespace"
        " UNION ALL SELECT i.indexname, i.indexdef FROM pg_indexes AS i WHERE i.schemaname = $1::text"
        " UNION ALL SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid)"
        " FROM pg_proc AS p WHERE p.pronamespace = $1::text::regnamespace",
        schema,
    )
    return sorted((name.replace(f"{schema}.", ""), said.replace(f"{schema}.", "")) for name, said in found)


async def test_a_migrated_schema_equals_a_fresh_one(store, url, sql, schema):
    await insert(store, new_job())
    old, fresh = PostgresStore(url), PostgresStore(url.replace(schema, f"{schema}_new"))
    with second_step(steps, NEXT):
        assert await old.missing() == [2]
        assert await old.migrate() == [2]
        assert await fresh.migrate() == [1, 2]
    assert await shape(sql, schema) == await shape(sql, f"{schema}_new")
    assert "key_noted" in dict(await shape(sql, schema))
    assert len(await claim(old)) == 1
    await old.close()
    await fresh.close()


async def test_the_sql_of_one_step_brings_an_older_schema_up_to_date(store, url, sql, schema):
    newer = PostgresStore(url)
    with second_step(steps, NEXT):
        await sql.execute(steps.dump(schema, after=1))
        assert await newer.migrate() == []
    await newer.close()


async def test_a_step_is_applied_whole_or_not_at_all(store, url, sql, schema):
    before = await shape(sql, schema)
    with (
        second_step(steps, NEXT + "CREATE TABLE holdfast.key (taken text);"),
        pytest.raises(ConfigError, match=r"version 2 of the schema cannot be applied .* nothing was changed"),
    ):
        await PostgresStore(url).migrate()
    assert await shape(sql, schema) == before
    again = PostgresStore(url)
    assert await again.migrate() == []
    await again.close()


async def test_a_newer_schema_is_refused(store, url, sql, schema):
    await sql.execute(f"INSERT INTO {schema}.migration (version) VALUES (999)")
    with pytest.raises(ConfigError, match="version 999"):
        await PostgresStore(url).open()


async def test_apps_in_two_schemas_of_one_database_do_not_meet(server, schema):
    one, two = (PostgresStore(f"{server.url}?schema={schema}_{n}") for n in "ab")
    await one.open()
    await two.open()
    await insert(one, new_job())
    assert await claim(two) == []
    assert len(await claim(one)) == 1
    await one.close()
    await two.close()


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("postgresql://h/d?schema=Bad-Name", "schema"),
        ("postgresql://h/d?pool=x", "pool"),
        ("postgresql://h/d?pool=0", "pool"),
        ("postgresql://h/d?colour=red", "unknown parameter colour"),
        ("postgresqlx://h/d", "postgresql://"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason(url, word):
    with pytest.raises(ConfigError, match=word):
        open_store(url, SystemClock())


def test_our_parameters_are_kept_from_the_driver():
    address = from_url("postgres://u:p%40@h:1/d?schema=s&pool=9&signal=redis%3A%2F%2Fx&sslmode=require")
    assert (address.schema, address.pool, address.signal) == ("s", 9, "redis://x")
    assert address.dsn == "postgresql://u:p%40@h:1/d?sslmode=require"
    assert "p%40" not in address.shown


async def test_a_server_that_is_not_there_is_unavailable_and_its_password_is_not_shown():
    store = PostgresStore("postgresql://me:hidden@127.0.0.1:1/db")
    with pytest.raises(StoreUnavailable) as refused:
        await store.open()
    assert "hidden" not in str(refused.value)
    assert refused.value.retry_safe


async def test_a_database_that_is_not_there_is_a_mistake(server):
    with pytest.raises(ConfigError, match="nowhere"):
        await PostgresStore(server.url.replace("/postgres", "/nowhere")).open()


async def test_a_dropped_schema_is_not_reported_as_an_outage(store, sql, schema):
    await sql.execute(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(ConfigError, match="holdfast migrate"):
        await insert(store, new_job())


async def test_the_doctor_speaks_of_an_old_transaction_and_a_missing_index(store, server, sql, schema, monkeypatch):
    monkeypatch.setattr("holdfast.store.postgres.doctor.OLD_SNAPSHOT", 0.05)
    old = await asyncpg.connect(server.url)
    transaction = old.transaction(isolation="repeatable_read")
    await transaction.start()
    await old.fetchval("SELECT count(*) FROM pg_class")
    await sql.execute(f"DROP INDEX {schema}.job_ready")
    await asyncio.sleep(0.1)
    said = [finding.what for finding in await store.examine() if not finding.fine]
    assert any("transaction open" in what for what in said)
    assert any("job_ready" in what for what in said)
    await transaction.rollback()
    await old.close()


def test_a_missing_driver_names_the_extra():
    script = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from holdfast import MissingExtra\n"
        "from holdfast.core.clock import SystemClock\n"
        "from holdfast.store.open import open_store\n"
        "try: open_store('postgresql://h/d', SystemClock())\n"
        "except MissingExtra as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "holdfast[postgres]" in said
