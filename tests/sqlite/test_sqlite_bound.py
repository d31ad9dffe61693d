"""Enqueueing inside the user's own transaction on the same file."""

import logging
import sqlite3

import pytest

from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.store.sqlite import version
from holdfast.testing.build import new_job
from holdfast.testing.verbs import claim_one, enqueue, gone, job

BIG = b'"' + b"x" * 5000 + b'"'


@pytest.fixture
def mine(path, store):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (name TEXT)")
    yield connection
    connection.close()


def outcomes(answers):
    return [(answer.outcome, answer.id) for answer in answers]


async def test_the_job_exists_once_the_users_transaction_commits(store, mine):
    mine.execute("INSERT INTO orders VALUES ('tea')")
    assert outcomes(await store.insert_bound(mine, [new_job("a"), new_job("b", payload=BIG)])) == [
        ("created", "a"),
        ("created", "b"),
    ]
    assert await gone(store, "a")
    mine.commit()
    assert (await job(store, "a")).state == "queued"
    assert (await job(store, "b")).payload == BIG
    assert {(await claim_one(store)).id, (await claim_one(store)).payload} == {"a", BIG}


async def test_the_job_is_removed_by_the_users_rollback(store, mine):
    mine.execute("INSERT INTO orders VALUES ('tea')")
    await store.insert_bound(mine, [new_job("a", key="k")])
    mine.rollback()
    assert await gone(store, "a")
    assert mine.execute("SELECT count(*) FROM orders").fetchone() == (0,)
    await enqueue(store, "other", key="k")


async def test_a_transaction_is_begun_where_sqlite3_would_begin_one(store, mine):
    await store.insert_bound(mine, [new_job("a")])
    assert mine.in_transaction
    assert await gone(store, "a")
    with mine:
        pass
    assert (await job(store, "a")).state == "queued"


async def test_in_autocommit_mode_the_job_is_there_at_once(path, store):
    connection = sqlite3.connect(path, isolation_level=None)
    await store.insert_bound(connection, [new_job("a", key="k")])
    connection.close()
    assert (await job(store, "a")).key == "k"


async def test_answers_are_the_same_as_through_the_store(store, mine):
    await enqueue(store, "first", key="k", payload=b"1")
    await enqueue(store, "named", nonce=7)
    answers = await store.insert_bound(
        mine,
        [
            new_job("x", key="k", payload=b"1"),
            new_job("y", key="k", payload=b"2"),
            new_job("named", nonce=8),
            new_job("named", nonce=7),
            new_job("z", max_depth=2),
        ],
    )
    assert outcomes(answers) == [
        ("existing", "first"), ("conflict", "first"), ("exists", "named"), ("created", "named"), ("full", "z"),
    ]  # fmt: skip


async def test_a_row_factory_of_the_users_is_kept(store, mine):
    mine.row_factory = sqlite3.Row
    await store.insert_bound(mine, [new_job("a", key="k")])
    await store.insert_bound(mine, [new_job("b", key="k")])
    assert mine.row_factory is sqlite3.Row
    mine.commit()


async def test_a_failing_job_leaves_the_users_transaction_whole(store, mine):
    mine.execute("INSERT INTO orders VALUES ('tea')")
    with pytest.raises(OverflowError):
        await store.insert_bound(mine, [new_job("good"), new_job("bad", priority=2**80)])
    assert mine.in_transaction
    mine.commit()
    assert await gone(store, "good")
    assert mine.execute("SELECT name FROM orders").fetchall() == [("tea",)]


async def test_another_file_is_refused(tmp_path, store):
    elsewhere = sqlite3.connect(tmp_path / "elsewhere.db")
    with pytest.raises(ConfigError, match=r"elsewhere\.db, but the jobs are in .*jobs\.db"):
        await store.insert_bound(elsewhere, [new_job()])
    elsewhere.close()
    memory = sqlite3.connect(":memory:")
    with pytest.raises(ConfigError, match="an in-memory database"):
        await store.insert_bound(memory, [new_job()])
    memory.close()


async def test_a_file_without_our_schema_is_refused(tmp_path):
    from holdfast.store.sqlite import SqliteStore

    connection = sqlite3.connect(tmp_path / "bare.db")
    connection.execute("CREATE TABLE orders (name TEXT)")
    with pytest.raises(ConfigError, match="no Holdfast tables"):
        await SqliteStore(tmp_path / "bare.db").insert_bound(connection, [new_job()])
    connection.close()


async def test_a_stale_snapshot_is_no_lock_error(path, store, mine):
    mine.execute("BEGIN")
    mine.execute("SELECT * FROM orders").fetchall()
    await enqueue(store, "meanwhile")
    with pytest.raises(StoreUnavailable, match="Roll back and try again"):
        await store.insert_bound(mine, [new_job("a")])
    mine.rollback()


async def test_on_a_version_with_the_reset_bug_the_connection_no_longer_checkpoints(store, mine, monkeypatch, caplog):
    monkeypatch.setattr(version, "has_reset_bug", lambda: True)
    monkeypatch.setattr(version, "_warned", [])
    with caplog.at_level(logging.INFO, "holdfast"):
        await store.insert_bound(mine, [new_job()])
        await store.insert_bound(mine, [new_job()])
    assert mine.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    [said] = caplog.records
    assert (said.levelname, "wal_autocheckpoint=0" in said.getMessage()) == ("WARNING", True)


@pytest.mark.parametrize(
    ("number", "affected"),
    [((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False), ((3, 45, 0), True), ((3, 50, 6), True),
     ((3, 50, 7), False), ((3, 51, 0), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 52, 0), False)],
)  # fmt: skip
def test_the_versions_with_the_reset_bug(number, affected):
    assert version.has_reset_bug(number) is affected
