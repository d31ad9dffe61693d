"""The user's own connection (`connection=`): which objects are accepted, and the driver's connection inside them.

Objects are recognised by the names of their classes, so that no library is imported for it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..core.errors import ConfigError

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

AIOSQLITE = ((0, 20), (0, 23))
"""The first version of aiosqlite whose private methods are known, and the first that was not tried."""


class Kind(NamedTuple):
    """What an accepted object is."""

    library: str
    is_async: bool = False
    is_session: bool = False


class Accepted(NamedTuple):
    """What a store accepts: connections of these drivers, or SQLAlchemy's and Django's over them."""

    drivers: tuple[str, ...]
    where: str
    """The address of the jobs, for messages."""

    def refused(self, connection: object) -> ConfigError:
        drivers = f"{', '.join(self.drivers[:-1])} or {self.drivers[-1]}"
        return ConfigError(
            f"connection= cannot be {_named(connection)}: the jobs are in {self.where}, so pass a connection of"
            f" {drivers}, a connection or session of SQLAlchemy, or Django's connection, to that database; not an"
            " engine, a pool or a factory of them, but the connection or session of your transaction"
        )


_KINDS = {
    "sqlite3.Connection": Kind("sqlite3"),
    "aiosqlite.core.Connection": Kind("aiosqlite", is_async=True),
    "asyncpg.connection.Connection": Kind("asyncpg", is_async=True),
    "asyncpg.pool.PoolConnectionProxy": Kind("asyncpg", is_async=True),
    "psycopg.Connection": Kind("psycopg"),
    "psycopg.AsyncConnection": Kind("psycopg", is_async=True),
    "psycopg2.extensions.connection": Kind("psycopg2"),
    "sqlalchemy.engine.base.Connection": Kind("sqlalchemy"),
    "sqlalchemy.orm.session.Session": Kind("sqlalchemy", is_session=True),
    "sqlalchemy.orm.scoping.scoped_session": Kind("sqlalchemy", is_session=True),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Kind("sqlalchemy", is_async=True),
    "sqlalchemy.ext.asyncio.session.AsyncSession": Kind("sqlalchemy", is_async=True, is_session=True),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": Kind("sqlalchemy", is_async=True, is_session=True),
    "django.utils.connection.ConnectionProxy": Kind("django"),
    "django.db.backends.base.base.BaseDatabaseWrapper": Kind("django"),
}
"""By a class of the object."""


def kind_of(connection: object) -> Kind | None:
    """The kind of an object; None if no store accepts it."""
    return next((_KINDS[name] for parent in type(connection).__mro__ if (name := _name(parent)) in _KINDS), None)


def check_kind(connection: object, accepted: Accepted) -> Kind:
    """The kind of an object that may lead to the store; else ConfigError."""
    kind = kind_of(connection)
    if kind is None or kind.library not in (*accepted.drivers, "sqlalchemy", "django"):
        raise accepted.refused(connection)
    return kind


async def unwrap(connection: Any, accepted: Accepted) -> tuple[Kind, Any]:
    """The connection that runs the statements of the user's transaction: the driver's, or SQLAlchemy's.

    With a blocking one nothing here yields to an event loop.
    """
    kind = check_kind(connection, accepted)
    if kind.library == "django":
        return await unwrap(_of_django(connection), accepted)
    if kind.is_async and not _loop_runs():
        raise ConfigError(
            f"connection= is {_named(connection)}, which is async and cannot be used in blocking code: use"
            " `await task.using(connection=…).enqueue(…)`, or pass a blocking connection to `task.sync`"
        )
    if kind.is_session:
        connection = await _of_session(kind, connection)
    if _is_closed(kind, connection):
        raise ConfigError(f"connection= is {_named(connection)} that is closed: open it, and begin a transaction")
    return kind, connection


async def on_sqlite(connection: Any, accepted: Accepted, work: Callable[[sqlite3.Connection], T]) -> T:
    """Call `work` with the connection of `sqlite3`, inside the user's transaction, on the thread that owns it."""
    kind, connection = await unwrap(connection, accepted)
    if kind.library == "sqlalchemy":
        # A statement of SQLAlchemy's own begins its transaction: otherwise its commit would do nothing.
        begun = connection.exec_driver_sql("SELECT 1")
        (await begun if kind.is_async else begun).close()
        raw = await connection.get_raw_connection() if kind.is_async else connection.connection
        return await on_sqlite(raw.driver_connection, accepted, work)
    if kind.library == "aiosqlite":
        return await connection._execute(work, connection._conn)  # noqa: SLF001  # of a known version: `_is_closed`
    return work(connection)


def begins_transactions(connection: sqlite3.Connection) -> bool:
    """Whether `sqlite3` begins a transaction before an INSERT, which the user's `commit()` then ends."""
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True


def _of_django(connection: Any) -> Any:
    from django.core.exceptions import SynchronousOnlyOperation  # pyright: ignore[reportMissingTypeStubs]

    try:
        with connection.cursor() as cursor:
            connection.validate_no_broken_transaction()  # as before each query: it will roll back
            return cursor.connection
    except SynchronousOnlyOperation:
        raise ConfigError(
            "Django's connection cannot be used in an event loop: put the atomic() block, with `task.using(connection="
            "connection).sync.enqueue(…)` in it, into a function, and call this function with sync_to_async"
        ) from None


async def _of_session(kind: Kind, session: Any) -> Any:
    from sqlalchemy.exc import UnboundExecutionError

    try:
        connection = session.connection()
        return await connection if kind.is_async else connection
    except UnboundExecutionError as error:
        raise ConfigError(
            f"connection= is a session with no engine for Holdfast's tables ({error}): pass session.connection("
            'bind_arguments={"bind": engine})'
        ) from error


def _is_closed(kind: Kind, connection: Any) -> bool:
    if kind.library == "asyncpg":
        from asyncpg import InterfaceError  # pyright: ignore[reportMissingTypeStubs]

        try:
            return connection.is_closed()
        except InterfaceError:  # it was given back to its pool
            return True
    if kind.library == "aiosqlite":
        _check_aiosqlite()
        try:
            return connection._conn is None  # noqa: SLF001  # of a known version
        except ValueError:
            return True
    return kind.library != "sqlite3" and bool(connection.closed)


def _check_aiosqlite() -> None:
    """Only private methods of aiosqlite run a function on the thread that owns its connection."""
    import aiosqlite

    first, unknown = AIOSQLITE
    if not first <= tuple(map(int, re.findall(r"\d+", aiosqlite.__version__)[:2])) < unknown:
        raise ConfigError(
            f"connection= works with aiosqlite {_dotted(first)} and later versions before {_dotted(unknown)}, not with"
            f" {aiosqlite.__version__}: install one of these, upgrade Holdfast, or pass a connection of sqlite3"
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _named(connection: object) -> str:
    return f"an object of {_name(type(connection))}"
