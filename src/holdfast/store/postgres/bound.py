"""Enqueue inside the user's own transaction: calls holdfast.write on the user's connection.

With a blocking one nothing here yields to an event loop, so that blocking code can run it on its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...core.errors import ConfigError
from ...core.job import NewJob
from ...core.operations import Inserted
from ..user_connection import Accepted, Kind, check_kind, unwrap
from . import sql
from .address import Address
from .call import insert_arguments

DRIVERS = ("asyncpg", "psycopg", "psycopg2")
_MISSING = {"42883", "3F000", "42P01"}
"""SQLSTATEs for a function, schema or table that does not exist."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def check(connection: Any, address: Address) -> None:
    """Refuse what cannot lead to a Postgres database."""
    check_kind(connection, Accepted(DRIVERS, address.shown))


async def insert_bound(connection: Any, address: Address, identity: str, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert with the user's connection. The jobs exist if and only if its transaction commits.

    `identity`: of the store's own schema (`sql.IDENTITY`).
    """
    given = {"identity": identity} | dict(zip(sql.NEW, insert_arguments(jobs), strict=True))
    given = {name: value for name, value in given.items() if value is not None} | {"bound": True}
    kind, inner = await unwrap(connection, Accepted(DRIVERS, address.shown))
    if kind.library == "sqlalchemy" and inner.dialect.name != "postgresql":
        raise ConfigError(
            f"connection= leads to a database of {inner.dialect.name}, but the jobs are in {address.shown}: pass a"
            " connection to that database"
        )
    try:
        rows = await _rows(kind, inner, address.schema, given)
    except Exception as error:
        if (meaning := _meaning(error, address)) is None:
            raise
        raise meaning from error
    answers = [Inserted("created", new.id) for new in jobs]
    for answer, elsewhere in rows:
        if elsewhere is not None:
            raise ConfigError(
                f"nothing was enqueued: connection= leads to the schema {address.schema} of another database,"
                f" {elsewhere.partition(' ')[2]}, but the jobs are in {address.shown}: pass a connection to that"
                " database. If its schema was created again, close the app and open it"
            )
        if answer is not None:
            for at, outcome, id in _decode(answer).get("inserts", ()):
                answers[at - 1] = Inserted(outcome, id)
    return answers


async def _rows(kind: Kind, connection: Any, schema: str, given: dict[str, Any]) -> Sequence[Any]:
    """Run the insert with the API of this kind of connection."""
    if kind.library == "sqlalchemy":
        from sqlalchemy import text

        result = connection.execute(text(_statement(schema, given, lambda _, name: f":{name}")), given)
        return (await result if kind.is_async else result).all()
    if kind.library == "asyncpg":
        return await connection.fetch(_statement(schema, given, lambda n, _: f"${n}"), *given.values())
    statement = _statement(schema, given, lambda _, __: "%s")
    # With a new cursor: the default cursors of the connection may have other placeholders or rows.
    if kind.library == "psycopg2":
        from psycopg2.extensions import cursor as tuple_cursor

        with connection.cursor(cursor_factory=tuple_cursor) as cursor:
            cursor.execute(statement, list(given.values()))
            return cursor.fetchall()
    from psycopg import AsyncCursor, Cursor
    from psycopg.rows import tuple_row

    if kind.is_async:
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.encode(), list(given.values()))
            return await cursor.fetchall()
    with Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement.encode(), list(given.values()))
        return cursor.fetchall()


def _statement(schema: str, given: dict[str, Any], mark: Callable[[int, str], str]) -> str:
    """A call of holdfast.write with the given arguments, each cast to its type: drivers infer some wrongly."""
    marks = {name: f"CAST({mark(n, name)} AS {sql.NEW.get(name, 'text')})" for n, name in enumerate(given, 1)}
    identity = marks.pop("identity")
    arguments = ", ".join(f"new_{name} => {value}" for name, value in marks.items())
    return sql.for_schema(sql.WRITE_BOUND.format(identity=identity, arguments=arguments), schema)


def _meaning(error: Exception, address: Address) -> ConfigError | None:
    """The error for a database that cannot be the store's; None for another, which the user's code knows."""
    raised = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's
    state = getattr(raised, "sqlstate", None) or getattr(raised, "pgcode", None)
    reason = str(raised).partition("\n")[0]
    if state in _MISSING:
        return ConfigError(
            f"nothing was enqueued: the database of connection= has no Holdfast schema {address.schema}, or an old one"
            f" ({reason}), but the jobs are in {address.shown}. Roll back, and pass a connection to that database, or"
            " run `holdfast migrate`"
        )
    if state == "42501":
        return ConfigError(
            f"nothing was enqueued: the user of connection= may not write to the schema {address.schema} ({reason})."
            " Roll back, and grant it what workers need"
        )
    return None
