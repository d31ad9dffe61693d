"""A database that is deleted, replaced, moved, truncated or linked while it is open."""

import contextlib
import errno
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from holdfast import Holdfast, StoreLost, Worker
from holdfast.core.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from holdfast.store.sqlite import SqliteStore, files, place, sql
from holdfast.store.sqlite import connection as connections
from holdfast.testing.verbs import enqueue, every
from support.eventually import eventually
from support.inside import session_of
from support.unseen import PASSING, unseen


def delete(path):
    for end in ("", "-wal", "-shm", "-lock"):
        Path(f"{path}{end}").unlink()


def delete_database(path):
    path.unlink()


def move(path):
    path.rename(f"{path}.old")


def move_back(path):
    Path(f"{path}.old").rename(path)


def replace(path):
    shutil.copy(path, f"{path}.new")
    Path(f"{path}.new").rename(path)


def replace_folder(path):
    path.parent.rename(f"{path.parent}.old")
    shutil.copytree(f"{path.parent}.old", path.parent)


def truncate(path):
    os.truncate(path, 0)


def truncate_half(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "jobs.db"


@pytest.fixture
async def filled(open_store, path):
    """A store with a job, and its file."""
    store = await open_store(busy_timeout=5)
    await enqueue(store, "before")
    other = sqlite3.connect(path)
    other.execute("PRAGMA wal_checkpoint")
    other.close()
    await enqueue(store, "second")
    return store


@pytest.mark.parametrize("harm", [delete, delete_database, move, replace, replace_folder, truncate, truncate_half])
async def test_a_missing_file_accepts_no_write_and_no_read(filled, path, harm):
    harm(path)
    with pytest.raises(StoreLost, match=r"jobs\.db was .*while this process had it open; nothing was written"):
        await enqueue(filled, "after")
    with pytest.raises(StoreLost):
        await every(filled)
    with pytest.raises(StoreLost):
        await filled.heartbeat([])


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_write_to_a_deleted_log_is_not_acknowledged(filled, path, end):
    path.with_name(f"jobs.db{end}").unlink()
    with pytest.raises(OutcomeUnknown, match=r"lost its write-ahead log.* is lost unless"):
        await enqueue(filled, "after")
    with pytest.raises(StoreLost, match="nothing was written"):
        await enqueue(filled, "later")


@pytest.mark.parametrize("number", PASSING, ids=errno.errorcode.get)
async def test_a_file_that_cannot_be_examined_for_a_while_is_not_lost(filled, open_store, number):
    with unseen("jobs.db", number):
        for call in (enqueue(filled, "refused"), every(filled), filled.heartbeat([]), open_store()):
            with pytest.raises(StoreUnavailable, match=r"db cannot be examined: .*; nothing was written") as raised:
                await call
            assert type(raised.value) is StoreUnavailable
    await enqueue(filled, "after")
    assert {record.id for record in await every(filled)} == {"before", "second", "after"}


async def test_a_write_whose_log_cannot_be_examined_afterwards_is_unknown(filled):
    with unseen("jobs.db-wal", errno.EIO):
        with pytest.raises(OutcomeUnknown, match="could not be examined afterwards"):
            await enqueue(filled, "unsure")
        with pytest.raises(StoreUnavailable, match="nothing was written") as raised:
            await enqueue(filled, "refused")
        assert type(raised.value) is StoreUnavailable
    await enqueue(filled, "after")
    assert {record.id for record in await every(filled)} == {"before", "second", "unsure", "after"}


async def test_a_file_that_is_moved_back_is_used_again(filled, path):
    move(path)
    with pytest.raises(StoreLost):
        await enqueue(filled, "refused")
    move_back(path)
    await enqueue(filled, "after")
    assert {record.id for record in await every(filled)} == {"before", "second", "after"}


@pytest.fixture
async def shrunk(filled, path, monkeypatch):
    """A store that has not checked its file since a VACUUM; and a connection of another program."""
    for number in range(300):
        await enqueue(filled, f"big-{number}", payload=b"x" * 4000)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA wal_checkpoint")
    await enqueue(filled, "seen")
    before = path.stat().st_size
    other.execute("DELETE FROM holdfast_payload")
    other.execute("VACUUM")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < before

    def refuse(*_, **__):
        raise sqlite3.DatabaseError("all of the file would be read")

    with monkeypatch.context() as patched:
        patched.setattr(connections, "connect_reader", refuse)
        yield filled, other
    other.close()


async def test_a_vacuum_is_no_truncation(shrunk):
    store, _ = shrunk
    await enqueue(store, "after")


async def test_a_file_that_a_checkpoint_could_not_fill_after_a_vacuum_is_no_truncation(shrunk, path):
    store, other = shrunk
    other.execute("CREATE TABLE filler (data BLOB)")
    for _ in range(5):
        other.execute("INSERT INTO filler VALUES (zeroblob(3000))")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM filler").fetchone()
    other.execute("UPDATE filler SET data = randomblob(3000)")
    other.execute("PRAGMA wal_checkpoint")
    seen = path.stat()
    header = files._first_bytes((seen.st_dev, seen.st_ino))  # which drops no locks, as closing the file would
    assert int.from_bytes(header[28:32]) * int.from_bytes(header[16:18]) > seen.st_size
    await enqueue(store, "after")
    reader.close()


async def test_a_file_that_was_truncated_after_a_vacuum_is_lost(shrunk, path):
    store, _ = shrunk
    truncate_half(path)
    with pytest.raises(StoreLost, match="was truncated"):
        await enqueue(store, "after")


async def test_opening_a_truncated_file_fails_at_once_and_keeps_its_log(filled, path, open_store):
    truncate(path)
    log = path.with_name("jobs.db-wal").stat().st_size
    with pytest.raises(ConfigError, match=r"is empty, but its write-ahead log .* is not"):
        await open_store()
    assert path.with_name("jobs.db-wal").stat().st_size == log
    with pytest.raises(StoreLost):
        await enqueue(filled, "after")


async def test_closing_a_replaced_store_leaves_the_log_of_its_successor(path, python):
    program = """
import asyncio, os, sys
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.verbs import enqueue, every
async def main(path):
    old = SqliteStore(path)
    await old.open()
    await enqueue(old, "old")
    for end in ("", "-wal", "-shm"):
        os.unlink(path + end)
    new = SqliteStore(path)
    await new.open()
    await enqueue(new, "new")
    await old.close()
    await enqueue(new, "newer")
    third = SqliteStore(path)
    await third.open()
    print(sorted(record.id for record in await every(third)))
    await third.close()
    await new.close()
asyncio.run(main(sys.argv[1]))
"""
    out, _ = python(program, path).communicate(timeout=60)
    assert out == "['new', 'newer']\n"


async def test_a_hard_link_is_refused(filled, path, tmp_path, open_store):
    os.link(path, tmp_path / "second.db")
    with pytest.raises(ConfigError, match=r"second\.db has 2 names \(hard links\)"):
        await open_store(path=tmp_path / "second.db")
    with pytest.raises(ConfigError, match=r"jobs\.db has 2 names"):
        await open_store()
    await enqueue(filled, "after")


async def test_a_transaction_by_a_hard_link_is_refused(path, tmp_path):
    async with Holdfast(f"sqlite:///{path}") as app:

        @app.task
        def add(x: int) -> int:
            return x

        os.link(path, tmp_path / "second.db")
        connection = sqlite3.connect(tmp_path / "second.db")
        with pytest.raises(ConfigError, match=r"connection= is to .*second\.db, but the jobs are in"):
            await add.using(connection=connection).enqueue(1)
        connection.close()


async def test_a_symbolic_link_is_the_same_store(filled, path, tmp_path, open_store):
    (tmp_path / "link.db").symlink_to(path)
    linked = await open_store(path=tmp_path / "link.db")
    await enqueue(linked, "by-link")
    await enqueue(filled, "by-name")
    assert {record.id for record in await every(linked)} == {"before", "second", "by-link", "by-name"}
    assert not (tmp_path / "link.db-wal").exists()


async def test_a_file_that_is_a_mount_point_is_refused(filled, path, open_store, monkeypatch):
    monkeypatch.setattr("holdfast.store.sqlite.place.mounts", lambda: [("/", "ext4"), (str(path), "ext4")])
    with pytest.raises(ConfigError, match="Mount its folder instead"):
        await open_store()


async def test_a_deleted_lock_file_is_made_again(filled, path):
    lock = path.with_name("jobs.db-lock")
    lock.unlink()
    await enqueue(filled, "after")
    assert lock.exists()


async def test_a_worker_ends_when_its_database_was_deleted(path):
    app = Holdfast(f"sqlite:///{path}", poll=0.05)
    async with app:

        async def renewed() -> bool:
            [seen] = await session_of(app).store.holders()
            return seen.heartbeat > 1

        @app.task
        async def harm() -> None:
            await eventually(renewed)  # the heartbeat's own store is open: opened later, it would make another file
            delete(path)

        await harm.enqueue()
        with pytest.raises(StoreLost, match="was deleted or moved"):
            await Worker(app).run()


def test_a_reader_makes_no_file(path):
    path.parent.mkdir(exist_ok=True)
    with pytest.raises(sqlite3.OperationalError):
        connections.connect_reader(str(path), 1.0)
    assert not path.exists()


async def test_an_open_that_fails_leaves_no_file_open(filled, path, open_store, monkeypatch):
    log = path.with_name("jobs.db-wal").stat()

    def descriptors():
        found = []
        for each in Path("/dev/fd").iterdir():
            with contextlib.suppress(OSError):  # the listing's own
                found.append(os.fstat(int(each.name)))
        return sum(os.path.samestat(one, log) for one in found)

    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(sql, "SCHEMA_TABLE", "SELECT * FROM missing")
        for _ in range(3):
            with pytest.raises(sqlite3.OperationalError):
                await open_store()
    assert descriptors() == before > 0


async def test_a_sibling_has_its_own_view(path):
    first = SqliteStore(path)
    await first.open()
    second = first.sibling()
    await second.open()
    replace(path)
    for store in (first, second):
        with pytest.raises(StoreLost, match="was replaced by another file"):
            await enqueue(store)
        await store.close()


def test_a_database_that_another_process_is_making_is_not_taken_for_a_truncated_one(tmp_path, monkeypatch):
    path, looks, real = tmp_path / "new.db", [], Path.stat
    path.touch()  # as SQLite does when it opens one
    other = sqlite3.connect(path, isolation_level=None)

    def stat(self, **options):
        found = real(self, **options) if os.path.exists(self) else None  # noqa: PTH110  # that would call this
        if not looks:  # between the first look and the second
            looks.append(self)
            other.execute("PRAGMA journal_mode=WAL")
            other.execute("CREATE TABLE made (n)")
        if found is None:
            raise FileNotFoundError(self)
        return found

    monkeypatch.setattr(Path, "stat", stat)
    try:
        place._refuse_cut(str(path))
    finally:
        monkeypatch.undo()
        other.close()
    assert looks
