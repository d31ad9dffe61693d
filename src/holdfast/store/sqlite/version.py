"""Checks of the SQLite version: new enough, and whether it has the WAL-reset bug.

From 3.7.0 to 3.51.2 (fixed in 3.44.6 and 3.50.7) a write that races a checkpoint of another connection can lose
committed pages. Every write and checkpoint of Holdfast takes one lock file, on every version; a connection of another
program to the same file does not, so its automatic checkpoints must be off.
"""

from __future__ import annotations

import logging
import sqlite3

from ...core.errors import ConfigError

log = logging.getLogger("holdfast")

OLDEST = (3, 35, 0)
"""The first version with RETURNING."""
_warned: list[bool] = []
"""Not empty once this process has logged the warning."""


def check() -> None:
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}, which is too old: use a Python with SQLite 3.35 or newer"
        )


def has_reset_bug(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    if version >= (3, 51, 3) or version < (3, 7, 0):
        return False
    return not ((3, 44, 6) <= version < (3, 45, 0) or (3, 50, 7) <= version < (3, 51, 0))


def warn_reset_bug() -> None:
    """Warn once per process, when a connection of the user writes. `holdfast doctor` always names the bug."""
    if _warned:
        return
    _warned.append(True)
    log.warning(
        "SQLite %s has the WAL-reset bug (fixed in 3.51.3): a lock file protects Holdfast's own writes and checkpoints;"
        " any other program that writes to the database file must set PRAGMA wal_autocheckpoint=0",
        sqlite3.sqlite_version,
    )
