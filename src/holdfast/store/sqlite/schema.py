"""Schema migrations: numbered SQL files, each applied once, in order, each in one transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...core.errors import ConfigError
from . import connection as connections
from . import place, sql, trouble

MIGRATIONS = Path(__file__).with_name("migrations")
LATEST = 1
"""The version that this code works with; a test compares it with the files."""


def steps() -> dict[int, str]:
    """The SQL of every migration, by its version."""
    return {int(file.name[:4]): file.read_text(encoding="utf-8") for file in sorted(MIGRATIONS.glob("[0-9]*.sql"))}


def version(connection: sqlite3.Connection) -> int:
    """The schema version of a file; 0 if it has no Holdfast tables."""
    if not connection.execute(sql.SCHEMA_TABLE).fetchone()[0]:
        return 0
    return connection.execute(sql.SCHEMA_VERSION).fetchone()[0] or 0


def check(found: int, path: str) -> None:
    if found > LATEST:
        raise ConfigError(
            f"{path} has schema version {found}; this Holdfast supports {LATEST}. Upgrade Holdfast, or use another file"
        )


def found(path: str, busy_timeout: float) -> int:
    """The schema version of a file, without an open store; 0 if there is no file or table. Creates nothing."""
    place.check(path)
    if not Path(path).exists():
        return 0
    connection = connections.connect_reader(path, busy_timeout)
    try:
        return version(connection)
    except sqlite3.Error as error:
        raise trouble.translate(error, path) or error from error
    finally:
        connection.close()


def dump() -> str:
    """The SQL that creates the schema, to apply it by other means."""
    parts = [f"{sql.BEGIN_WRITE};"]
    for number, script in steps().items():
        parts += [script.strip(), f"{sql.SCHEMA_STEP.format(version=number, now=sql.NOW)};"]
    return "\n\n".join([*parts, f"{sql.COMMIT};"]) + "\n"


def missing(path: str, busy_timeout: float) -> list[int]:
    """The versions that a file lacks; all of them if there is no file."""
    known = found(path, busy_timeout)
    check(known, path)
    return [number for number in steps() if number > known]


def migrate(connection: sqlite3.Connection, path: str, now: int) -> list[int]:
    """Bring the schema up to date, under the lock file; the versions that were applied."""
    found = version(connection)
    check(found, path)
    applied: list[int] = []
    if found < LATEST:
        for number, script in steps().items():
            if number > found:
                apply(connection, path, number, script, now)
                applied.append(number)
    return applied


def apply(connection: sqlite3.Connection, path: str, number: int, script: str, now: int) -> None:
    """Apply one version in one transaction."""
    record = sql.SCHEMA_STEP.format(version=number, now=now)
    try:
        connection.executescript(f"{sql.BEGIN_WRITE};\n{script}\n{record};\n{sql.COMMIT};")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute(sql.ROLLBACK)
        if isinstance(error, sqlite3.Error) and trouble.translate(error, "") is None:
            raise ConfigError(
                f"{path}: version {number} of the schema cannot be applied ({error}); nothing was changed. Correct the"
                " cause and try again. If all its objects exist and only the row in holdfast_schema is missing, run:"
                f" {sql.SCHEMA_STEP.format(version=number, now=0)}"
            ) from error
        raise
