"""Translates SQLite errors to Holdfast errors, which say whether the write happened and what to do."""

from __future__ import annotations

import sqlite3

from ...core.errors import ConfigError, HoldfastError, StoreRefused, StoreUnavailable

UNDECODABLE = "Could not decode to UTF-8"
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_REFUSED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_PERMIT = "Give this user write permission for the file and its folder"
_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: ("the disk is full", "Free space on the disk"),
    sqlite3.SQLITE_IOERR: ("the disk reported an error", "Check the disk"),
    sqlite3.SQLITE_NOMEM: ("SQLite ran out of memory", "Free memory, then try again"),
    sqlite3.SQLITE_READONLY: ("the file cannot be written to", _PERMIT),
    sqlite3.SQLITE_CANTOPEN: ("the file cannot be opened", "Check that the file exists, and its permissions"),
    sqlite3.SQLITE_PERM: ("access was denied", _PERMIT),
    sqlite3.SQLITE_AUTH: ("access was denied", _PERMIT),
    sqlite3.SQLITE_PROTOCOL: ("the file could not be locked", "Try again"),
    sqlite3.SQLITE_CORRUPT: ("the file is damaged", "Keep a copy of it, and check it with PRAGMA integrity_check"),
}
"""By result code: what happened, and what to do."""


def code(error: BaseException) -> int:
    """SQLite's primary result code; 0 where the error is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def translate(error: sqlite3.Error, path: str) -> HoldfastError | None:
    """The Holdfast error for an SQLite error after which nothing was written; None for an error of the caller."""
    reason = code(error)
    if reason in _BUSY:
        # SQLite does not report whether it has waited: a change of the journal mode, for one, is refused at once.
        return StoreUnavailable(
            f"another connection holds a lock on {path}; nothing was written. End the transaction of that connection,"
            " then try again"
        )
    if reason == sqlite3.SQLITE_NOTADB:
        return ConfigError(f"{path} is not a SQLite database; use another file")
    if reason in _UNAVAILABLE:
        kind = StoreRefused if reason in _REFUSED else StoreUnavailable
        what, advice = _UNAVAILABLE[reason]
        return kind(f"{path}: {what} ({error}); nothing was written. {advice}")
    return None
