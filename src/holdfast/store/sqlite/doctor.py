"""The checks of `holdfast doctor` for a SQLite store."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from ...core.errors import ConfigError
from ..free_space import free_space
from ..protocol import Finding
from . import connection as connections
from . import place, schema, trouble, version

LONG_WAL = 16 * connections.WAL_LIMIT


def examine(path: str, busy_timeout: float) -> list[Finding]:
    """Run all checks; writes nothing. The first finding is about the schema, if it can be read."""
    try:
        version.check()
        place.check(path)
    except ConfigError as error:
        return [Finding(False, str(error))]
    if not Path(path).exists():
        return [Finding(False, f"there is no file {path}", "the first enqueue or worker creates it")]
    connection = connections.connect_reader(path, busy_timeout)
    try:
        found = schema.version(connection)
        broken = [row[0] for row in connection.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    except sqlite3.DatabaseError as error:
        damaged = trouble.code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        advice = (
            "copy the file, then restore a backup" if damaged else "the disk may be full or failing: free space first"
        )
        return [Finding(False, f"{path} cannot be read: {error}", advice), free_space(Path(path).parent)]
    finally:
        connection.close()
    wal = Path(path + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    private = not Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    writable = os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)
    newer = "upgrade Holdfast" if found > schema.LATEST else "run `holdfast migrate`"
    return [
        Finding(found == schema.LATEST, f"schema version {found}; this Holdfast uses {schema.LATEST}", newer),
        Finding(
            writable,
            f"{path} and its folder are {'' if writable else 'not '}writable",
            "give this user write permission for both",
        ),
        Finding(not broken, f"PRAGMA quick_check: {'; '.join(broken) or 'ok'}", "copy the file, then restore a backup"),
        Finding(mode == "wal", f"the journal mode is {mode}", "open the store once with Holdfast, which sets WAL"),
        Finding(
            size <= LONG_WAL,
            f"the write-ahead log has {size} bytes",
            "end long reads of the file: until then SQLite cannot truncate the log",
        ),
        free_space(Path(path).parent),
        Finding(
            private,
            f"{path} can be opened by {'its owner only' if private else 'other users of this machine'}",
            f"run: chmod 600 {path}",
        ),
        Finding(True, _library()),
    ]


def _library() -> str:
    text = f"SQLite {sqlite3.sqlite_version}"
    return text + (
        " has the WAL-reset bug; a lock file protects the writes of Holdfast" if version.has_reset_bug() else ""
    )
