"""What may be wrong with a SQLite store, in words."""

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
    """Look at everything; writes nothing. The first finding is about the schema, if it can be read."""
    try:
        version.check()
        place.check(path)
    except ConfigError as error:
        return [Finding(False, str(error))]
    if not Path(path).exists():
        return [Finding(False, f"there is no file {path}", "the first enqueue or worker makes it")]
    connection = connections.connect_reader(path, busy_timeout)
    try:
        found = schema.version(connection)
        broken = [row[0] for row in connection.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    except sqlite3.DatabaseError as error:
        damaged = trouble.code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        advice = "keep a copy, and restore a backup" if damaged else "the disk may be full or failing: make room first"
        return [Finding(False, f"{path} cannot be read: {error}", advice), free_space(Path(path).parent)]
    finally:
        connection.close()
    wal = Path(path + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    private = not Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    writable = os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)
    newer = "upgrade Holdfast" if found > schema.LATEST else "run `holdfast migrate`"
    return [
        Finding(found == schema.LATEST, f"the schema has version {found} of {schema.LATEST}", newer),
        Finding(writable, f"the file and its folder can{'' if writable else 'not'} be written", "let this user write"),
        Finding(not broken, f"the file is sound{''.join(f'; {line}' for line in broken)}", "restore a backup"),
        Finding(mode == "wal", f"the journal mode is {mode}", "open it with Holdfast once: it needs the WAL"),
        Finding(size <= LONG_WAL, f"the write-ahead log has {size} bytes", "a long reading keeps it from being cut"),
        free_space(Path(path).parent),
        Finding(private, "the file is private to its user", f"chmod 600 {path}"),
        Finding(True, _library()),
    ]


def _library() -> str:
    text = f"SQLite {sqlite3.sqlite_version}"
    return text + (", with the WAL-reset bug: guarded by the lock file" if version.has_reset_bug() else "")
