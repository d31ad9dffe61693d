"""Connections to the file: how they are opened, set up, and forgotten after a fork."""

from __future__ import annotations

import os
import sqlite3
from typing import Any
from urllib.parse import quote

from ...core.errors import ConfigError
from . import sql, trouble

WAL_LIMIT = 4 * 1024 * 1024
"""Bytes of write-ahead log above which it is copied into the database and begun anew."""

_inherited: list[object] = []
"""A parent's connections in a forked child. They must never be closed there, so they are never let go."""


def connect(path: str, busy_timeout: float, *, uri: bool = False) -> sqlite3.Connection:
    """A connection that begins and commits only when told to."""
    # Used by one thread; closed by another where a process forks (fork.py).
    connection = sqlite3.connect(
        path, timeout=busy_timeout, isolation_level=None, cached_statements=256, check_same_thread=False, uri=uri
    )
    try:
        # Checkpoints are ours alone (writer.py): an automatic one could race another connection's write.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_writer(path: str, busy_timeout: float, synchronous: str) -> sqlite3.Connection:
    """A connection that writes, with the file in WAL mode."""
    connection = connect(path, busy_timeout)
    try:
        _switch_to_wal(connection, path)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
        connection.execute("PRAGMA cache_size = -16000")
    except BaseException:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection, path: str) -> None:
    # The pragma does not raise when it has no effect; its row says what the mode is now.
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise ConfigError(f"{path} could not be switched to a write-ahead log (its journal mode stays {mode})")


def connect_reader(path: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection that cannot write, nor make a file: one that was deleted a moment ago must not come back empty."""
    connection = connect(f"file:{quote(os.fsencode(path))}?mode=rw", busy_timeout, uri=True)
    connection.execute("PRAGMA query_only = 1")
    return connection


def read_leniently(connection: sqlite3.Connection, error: BaseException) -> bool:
    """After a text that is not UTF-8: read such a text as bytes from now on. True where that helps: do it again."""
    if connection.text_factory is _lenient or trouble.UNDECODABLE not in str(error):
        return False
    connection.text_factory = _lenient
    return True


def _lenient(text: bytes) -> str | bytes:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute(sql.ROLLBACK)


def forget(*things: Any) -> None:
    """In a forked child: keep these for ever, so that no destructor closes what is still the parent's."""
    import ctypes

    for thing in things:
        if thing is not None:
            _inherited.append(thing)
            # Even the end of the interpreter must not close them.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
