"""The schema: its steps, what it leaves alone, and files that it refuses."""

import sqlite3
from contextlib import closing

import pytest

from holdfast.core.errors import ConfigError, HoldfastError
from holdfast.core.job import STORED
from holdfast.store.sqlite import schema, sql
from holdfast.testing.verbs import enqueue, job
from support.second_step import second_step

NEXT = """
ALTER TABLE holdfast_key ADD COLUMN note TEXT;
CREATE INDEX holdfast_noted ON holdfast_key (note) WHERE note IS NOT NULL;
"""


def shape(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
        ).fetchall()
    finally:
        connection.close()


def test_the_code_works_with_the_newest_step():
    assert list(schema.steps()) == list(range(1, schema.LATEST + 1))


async def test_a_migrated_file_equals_a_fresh_one(path, tmp_path, open_store):
    old = await open_store()
    await enqueue(old, "kept")
    await old.close()
    with second_step(schema, NEXT):
        old, fresh = await open_store(), await open_store(path=tmp_path / "fresh.db")
        assert await old.migrate() == [2]
        assert await fresh.migrate() == [1, 2]
    assert shape(path) == shape(tmp_path / "fresh.db")
    assert "holdfast_noted" in [name for _, name, _, _ in shape(path)]
    assert (await job(old, "kept")).state == "queued"


async def test_a_step_is_applied_whole_or_not_at_all(path, store, open_store):
    await store.close()
    before = shape(path)
    with (
        second_step(schema, NEXT + "CREATE TABLE holdfast_key (taken TEXT);"),
        pytest.raises(ConfigError, match=r"version 2 of the schema cannot be applied .* nothing was changed"),
    ):
        await open_store()
    assert shape(path) == before
    assert await (await open_store()).migrate() == []


async def test_opening_again_changes_nothing(path, open_store):
    first = await open_store()
    await enqueue(first, "kept")
    before = shape(path)
    second = await open_store()
    assert await second.migrate() == []
    assert shape(path) == before
    assert (await job(second, "kept")).state == "queued"


async def test_every_field_of_a_record_has_its_column(path, store):
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(holdfast_job)")]
    connection.close()
    assert sorted(columns) == sorted([*STORED, "bounds", "nonce", "settled"])
    assert set(sql.CHANGING) < set(columns)


async def test_the_users_own_tables_and_version_are_left_alone(path, open_store):
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE job (mine TEXT); INSERT INTO job VALUES ('mine'); PRAGMA user_version = 42;")
    store = await open_store()
    await enqueue(store)
    assert connection.execute("SELECT * FROM job").fetchall() == [("mine",)]
    assert connection.execute("PRAGMA user_version").fetchone() == (42,)
    connection.close()


async def test_a_newer_schema_is_refused(path, store, open_store):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("INSERT INTO holdfast_schema VALUES (?, 0)", (schema.LATEST + 1,))
    connection.close()
    with pytest.raises(ConfigError, match=f"version {schema.LATEST + 1}; this Holdfast supports {schema.LATEST}"):
        await open_store()


async def test_a_step_whose_row_was_lost_is_explained(path, store, open_store):
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM holdfast_schema WHERE version = ?", (schema.LATEST,))
    with pytest.raises(ConfigError, match=f"version {schema.LATEST} of the schema cannot be applied") as raised:
        await open_store()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(str(raised.value).rpartition("is missing, run: ")[2])
    await open_store()


async def test_a_file_that_is_no_database_is_named(path, open_store):
    path.write_bytes(b"a letter to my aunt\n" * 1000)
    with pytest.raises(ConfigError, match=r"jobs\.db is not a SQLite database"):
        await open_store()
    assert path.read_bytes().startswith(b"a letter")


async def test_a_damaged_file_is_named(path, open_store):
    store = await open_store()
    for number in range(200):
        await enqueue(store, f"job-{number}")
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xff" * (len(content) - 4096 * 3)
    path.write_bytes(content)

    async def read():
        damaged = await open_store()
        await damaged.get([f"job-{number}" for number in range(200)])

    with pytest.raises(HoldfastError, match=r"jobs\.db: the file is damaged"):
        await read()
