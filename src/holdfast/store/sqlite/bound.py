"""Enqueue inside the user's own transaction: runs the same statements on the user's connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.clock import Clock
from ...core.errors import ConfigError, StoreUnavailable
from ...core.job import NewJob
from ...core.operations import Inserted
from ..user_connection import Accepted, begins_transactions, on_sqlite
from . import schema, sql, transitions, trouble, version
from .enqueue import insert_all
from .step import Step

DRIVERS = ("sqlite3", "aiosqlite")


async def insert_bound(connection: Any, path: str, clock: Clock, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert with the user's connection. The jobs exist if and only if its transaction commits."""

    def insert(raw: sqlite3.Connection) -> list[Inserted]:
        with _plainly(raw, path):
            if not _has_tables(raw, path):
                raise _without_tables(path)
            if version.has_reset_bug():
                version.warn_reset_bug()
                raw.execute("PRAGMA wal_autocheckpoint = 0")
            return _insert(raw, clock, jobs)

    return await on_sqlite(connection, Accepted(DRIVERS, path), insert)


async def check(connection: Any, path: str) -> None:
    """Refuse to open the store if it would wait for the user's own transaction to create its tables."""

    def look(raw: sqlite3.Connection) -> None:
        with _plainly(raw, path):
            if not _has_tables(raw, path) and raw.in_transaction:
                raise _without_tables(path)

    await on_sqlite(connection, Accepted(DRIVERS, path), look)


@contextmanager
def _plainly(connection: sqlite3.Connection, path: str) -> Generator[None]:
    """Use the user's connection without its row and text factories, and translate its errors."""
    try:
        connection.cursor().close()
    except sqlite3.ProgrammingError as error:  # it is closed, or belongs to another thread
        raise ConfigError(
            f"connection= cannot be used here ({error}): pass an open connection to {path}, on the thread that made it"
        ) from error
    factories = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        yield
    except sqlite3.OperationalError as error:
        if trouble.code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreUnavailable(
                f"nothing was enqueued: another connection wrote to {path} or holds its write lock. Roll back and try"
                " again; a transaction that begins with BEGIN IMMEDIATE gets the lock at its start"
            ) from error
        raise
    finally:
        connection.row_factory, connection.text_factory = factories


def _has_tables(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file has the tables that this code works with, as the user's connection sees it."""
    file = next((row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"), "")
    if not file or not (file == path or _same_file(file, path)):
        raise ConfigError(
            f"connection= is to {file or 'an in-memory database'}, but the jobs are in {path}: pass a connection to"
            " that file"
        )
    found = schema.version(connection)
    schema.check(found, path)
    return found == schema.LATEST


def _same_file(file: str, path: str) -> bool:
    """Whether both name the same file. A hard link does not count: it has another write-ahead log."""
    return Path(path).exists() and Path(path).samefile(file) and Path(path).stat().st_nlink == 1


def _without_tables(path: str) -> ConfigError:
    return ConfigError(
        f"{path} has no Holdfast tables of version {schema.LATEST}, and your open transaction prevents their creation:"
        " roll back, then run `holdfast migrate`, or open the app (`await app.open()`) before the transaction begins"
    )


def _insert(connection: sqlite3.Connection, clock: Clock, jobs: Sequence[NewJob]) -> list[Inserted]:
    if begins_transactions(connection) and not connection.in_transaction:
        # As sqlite3 itself does before an INSERT; IMMEDIATE, because the next thing is a write.
        connection.execute(sql.BEGIN_WRITE)
    # The savepoint keeps the user's transaction whole if one job fails; in autocommit mode it is the transaction.
    connection.execute("SAVEPOINT holdfast")
    try:
        step = Step(connection, clock, bulk=False)
        answers = insert_all(step, jobs)
        transitions.write(step)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO holdfast")
            connection.execute("RELEASE holdfast")
        raise
    connection.execute("RELEASE holdfast")
    return answers
