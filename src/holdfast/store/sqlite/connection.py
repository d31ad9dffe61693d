"""Connections to the file: opening, setup, and leaking them after a fork."""

from __future__ import annotations

import os
import sqlite3
from typing import Any
from urllib.parse import quote

from ...core.errors import ConfigError
from . import sql, trouble

WAL_LIMIT = 4 * 1024 * 1024
"""Bytes of write-ahead log above which it is copied into the database and restarted."""

_inherited: list[object] = []
"""A parent's connections in a forked child. They must never be closed there, so they are referenced forever."""


def connect(
    path: str, busy_timeout: float, *, uri: bool = False, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A connection without implicit transactions."""
    # Used by one thread; closed by another when the process forks (fork.py).
    connection = sqlite3.connect(
        path,
        timeout=busy_timeout,
        isolation_level=None,
        cached_statements=256,
        check_same_thread=False,
        uri=uri,
        factory=factory,
    )
    try:
        # Only writer.py makes checkpoints: an automatic one could race another connection's write.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_writer(
    path: str, busy_timeout: float, synchronous: str, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A connection that writes, with the file in WAL mode."""
    connection = connect(path, busy_timeout, factory=factory)
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
    # The pragma does not raise when it has no effect; it returns the present mode.
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise ConfigError(
            f"SQLite could not switch {path} to journal mode WAL (it stays {mode}): move the file to a local disk"
        )


def connect_reader(path: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection that cannot write or create the file: one that was just deleted must not come back empty."""
    connection = connect(f"file:{quote(os.fsencode(path))}?mode=rw", busy_timeout, uri=True)
    connection.execute(sql.READ_ONLY)
    return connection


def read_leniently(connection: sqlite3.Connection, error: BaseException) -> bool:
    """After an error about a text that is not UTF-8: read such texts as bytes from now on. True: repeat the read."""
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
    """Reference these forever, so that no destructor closes in a forked child what the parent still uses."""
    import ctypes

    for thing in things:
        if thing is not None:
            _inherited.append(thing)
            # Even the end of the interpreter must not close them.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
