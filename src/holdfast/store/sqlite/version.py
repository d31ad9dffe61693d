"""Which SQLite this is: new enough, and whether it has the WAL-reset bug.

From 3.7.0 to 3.51.2 (mended in 3.44.6 and 3.50.7) a write that races a checkpoint of another connection can lose
committed pages. Every write and checkpoint of Holdfast stands behind one lock file, on every version; a foreign
connection that writes to the same file does not, so its automatic checkpoints must be off.
"""

from __future__ import annotations

import logging
import sqlite3

from ...core.errors import ConfigError

log = logging.getLogger("holdfast")
INFO, WARNING = logging.INFO, logging.WARNING

OLDEST = (3, 35, 0)
"""The first with RETURNING."""
_said: set[int] = set()


def check() -> None:
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old: Holdfast needs 3.35 or newer")


def has_reset_bug(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    if version >= (3, 51, 3) or version < (3, 7, 0):
        return False
    return not ((3, 44, 6) <= version < (3, 45, 0) or (3, 50, 7) <= version < (3, 51, 0))


def say(level: int) -> None:
    """Log once per process what an affected version means: INFO while only Holdfast writes, WARNING when others do."""
    if not has_reset_bug() or level in _said:
        return
    _said.add(level)
    log.log(
        level,
        "SQLite %s has the WAL-reset bug (mended in 3.51.3): Holdfast's own writes and checkpoints are guarded by a"
        " lock file; any other program that writes to this file must set PRAGMA wal_autocheckpoint=0",
        sqlite3.sqlite_version,
    )
