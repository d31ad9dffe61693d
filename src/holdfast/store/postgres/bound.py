"""Enqueue inside the user's own transaction: the same function of the schema, on the user's connection.

Takes connections of asyncpg and psycopg 3 (async and blocking), and SQLAlchemy's sessions and connections over either.
With a blocking one nothing here really waits, so that blocking code can run it on its own thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...core.errors import ConfigError
from ...core.job import NewJob
from ...core.operations import Inserted
from . import sql
from .call import insert_arguments
from .place import Place

_said = msgspec.json.Decoder(dict[str, Any]).decode


async def insert_bound(connection: Any, place: Place, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert with the user's connection. The jobs exist if and only if its transaction commits."""
    given = dict(zip(sql.NEW, insert_arguments(jobs), strict=True))
    given = {name: value for name, value in given.items() if value is not None} | {"bound": True}
    rows = await _rows(connection, place.schema, given)
    answers = [Inserted("created", new.id) for new in jobs]
    for (said,) in rows:
        if said is not None:
            for at, outcome, id in _said(said).get("inserts", ()):
                answers[at - 1] = Inserted(outcome, id)
    return answers


async def _rows(connection: Any, schema: str, given: dict[str, Any]) -> Sequence[Any]:
    """Run the insert in whatever way this kind of connection has."""
    driver = kind(connection)
    if driver == "asyncpg":
        return await connection.fetch(_statement(schema, given, lambda n, _: f"${n}"), *given.values())
    if driver == "psycopg":
        # A cursor of its own: the connection's may make rows of another shape.
        from psycopg.rows import tuple_row

        cursor = connection.cursor(row_factory=tuple_row)
        said = cursor.execute(_statement(schema, given, lambda _, __: "%s"), list(given.values()))
        if inspect.isawaitable(said):
            await said
            return await cursor.fetchall()
        return cursor.fetchall()
    from sqlalchemy import text

    said = connection.execute(text(_statement(schema, given, lambda _, name: f":{name}")), given)
    if inspect.isawaitable(said):
        said = await said
    return said.all()


def kind(connection: Any) -> str:
    """Whose connection it is, by where its class or one of its parents comes from."""
    for parent in type(connection).__mro__:
        if (home := parent.__module__.partition(".")[0]) in ("asyncpg", "psycopg", "sqlalchemy"):
            return home
    raise ConfigError(
        f"connection= takes asyncpg, psycopg 3 and SQLAlchemy connections and sessions, not {type(connection).__name__}"
    )


def _statement(schema: str, given: dict[str, Any], mark: Callable[[int, str], str]) -> str:
    """A call of holdfast.write with the given arguments, every one with its type: drivers guess badly."""
    marks = [f"new_{name} => CAST({mark(n, name)} AS {sql.NEW[name]})" for n, name in enumerate(given, 1)]
    return sql.for_schema(f"SELECT answer FROM holdfast.write({', '.join(marks)})", schema)  # noqa: S608  # from sql.NEW alone
