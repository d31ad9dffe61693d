"""Enqueue inside the user's own transaction: calls holdfast.write on the user's connection.

Accepts connections of asyncpg and psycopg 3 (async and blocking), and SQLAlchemy's sessions and connections over them.
With a blocking one nothing here yields to an event loop, so that blocking code can run it on its own thread.
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

_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def insert_bound(connection: Any, place: Place, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert with the user's connection. The jobs exist if and only if its transaction commits."""
    given = dict(zip(sql.NEW, insert_arguments(jobs), strict=True))
    given = {name: value for name, value in given.items() if value is not None} | {"bound": True}
    rows = await _rows(connection, place.schema, given)
    answers = [Inserted("created", new.id) for new in jobs]
    for (answer,) in rows:
        if answer is not None:
            for at, outcome, id in _decode(answer).get("inserts", ()):
                answers[at - 1] = Inserted(outcome, id)
    return answers


async def _rows(connection: Any, schema: str, given: dict[str, Any]) -> Sequence[Any]:
    """Run the insert with the API of this kind of connection."""
    driver = kind(connection)
    if driver == "asyncpg":
        return await connection.fetch(_statement(schema, given, lambda n, _: f"${n}"), *given.values())
    if driver == "psycopg":
        # With a cursor of its own: the connection's may have another row factory.
        from psycopg.rows import tuple_row

        cursor = connection.cursor(row_factory=tuple_row)
        executed = cursor.execute(_statement(schema, given, lambda _, __: "%s"), list(given.values()))
        if inspect.isawaitable(executed):
            await executed
            return await cursor.fetchall()
        return cursor.fetchall()
    from sqlalchemy import text

    result = connection.execute(text(_statement(schema, given, lambda _, name: f":{name}")), given)
    if inspect.isawaitable(result):
        result = await result
    return result.all()


def kind(connection: Any) -> str:
    """The library of a connection, by the module of its class or one of its parents; else ConfigError."""
    for parent in type(connection).__mro__:
        if (home := parent.__module__.partition(".")[0]) in ("asyncpg", "psycopg", "sqlalchemy"):
            return home
    raise ConfigError(
        "connection= must be a connection of asyncpg, psycopg 3 or SQLAlchemy, not"
        f" {type(connection).__module__}.{type(connection).__qualname__}"
    )


def _statement(schema: str, given: dict[str, Any], mark: Callable[[int, str], str]) -> str:
    """A call of holdfast.write with the given arguments, each cast to its type: drivers infer some wrongly."""
    marks = [f"new_{name} => CAST({mark(n, name)} AS {sql.NEW[name]})" for n, name in enumerate(given, 1)]
    return sql.for_schema(f"SELECT answer FROM holdfast.write({', '.join(marks)})", schema)  # noqa: S608  # from sql.NEW alone
