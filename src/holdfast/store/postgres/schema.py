"""Schema migrations: numbered SQL files or folders, each applied once, in order, all in one transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from . import sql, trouble
from .address import Address
from .constants import filled
from .driver import asyncpg

MIGRATIONS = Path(__file__).with_name("migrations")
LATEST = 1
"""The version that this code works with; a test compares it with the files."""


def steps() -> dict[int, str]:
    """The SQL of every migration, by its version, with its constants filled in. A long one is a folder of parts."""
    return {int(step.name[:4]): _script(step) for step in sorted(MIGRATIONS.glob("[0-9]*"))}


def _script(step: Path) -> str:
    parts = sorted(step.glob("*.sql")) if step.is_dir() else [step]
    return filled("\n".join(part.read_text(encoding="utf-8") for part in parts))


async def state(connection: Any, schema: str) -> tuple[int, str]:
    """The version of a schema, and its identity (`sql.IDENTITY`); 0 if it has no Holdfast tables."""
    if not await connection.fetchval(sql.for_schema(sql.EXISTS, schema)):
        return 0, ""
    return tuple(await connection.fetchrow(sql.for_schema(sql.STATE, schema)))


async def version(connection: Any, schema: str) -> int:
    """The version of a schema; 0 if it has no Holdfast tables."""
    return (await state(connection, schema))[0]


def check(found: int, address: Address) -> None:
    """Refuse a schema that is newer than this code."""
    if found > LATEST:
        raise ConfigError(
            f"{address.shown} has schema version {found}; this Holdfast supports {LATEST}. Upgrade Holdfast, or use"
            " another ?schema="
        )


async def migrate(connection: Any, address: Address) -> tuple[list[int], str]:
    """Bring the schema up to date; the versions that were applied, and its identity. Concurrent callers wait for each
    other.
    """
    found, identity = await state(connection, address.schema)
    check(found, address)
    if found == LATEST:
        return [], identity
    applied: list[int] = []
    async with connection.transaction():
        await connection.execute(sql.for_schema(sql.LOCK_SCHEMA, address.schema))
        await connection.execute(sql.for_schema(sql.CREATE_SCHEMA, address.schema))
        found = await version(connection, address.schema)
        check(found, address)
        for number, script in steps().items():
            if number > found:
                await _apply(connection, address, number, script)
                await connection.execute(sql.for_schema(sql.APPLIED.format(version=number), address.schema))
                applied.append(number)
        return applied, (await state(connection, address.schema))[1]


async def _apply(connection: Any, address: Address, number: int, script: str) -> None:
    try:
        await connection.execute(sql.for_schema(script, address.schema))
    except asyncpg.PostgresError as error:
        if trouble.reading(error, address.shown) is not None:
            raise
        raise ConfigError(
            f"{address.shown}: version {number} of the schema cannot be applied ({error}); nothing was changed. Correct"
            f" the cause and try again. If all its objects exist and only the row in {address.schema}.migration is"
            f" missing, run: {sql.for_schema(sql.APPLIED.format(version=number), address.schema)}"
        ) from error


def dump(schema: str = "holdfast", after: int = 0) -> str:
    """The SQL that brings a schema from version `after` to the newest, to apply it by other means."""
    Address("", schema)
    parts = ["BEGIN;", f"{sql.LOCK_SCHEMA};", f"{sql.CREATE_SCHEMA.strip()};"]
    for number, script in steps().items():
        if number > after:
            parts += [script.strip(), f"{sql.APPLIED.format(version=number)};"]
    return sql.for_schema("\n\n".join([*parts, "COMMIT;"]), schema) + "\n"


async def missing(connection: Any, address: Address) -> list[int]:
    """The versions that are yet to be applied; empty if the schema is up to date."""
    found = await version(connection, address.schema)
    check(found, address)
    return [number for number in steps() if number > found]
