"""Whether the files that SQLite has open are still those that their names stand for.

SQLite goes on with a file that was deleted, replaced or moved, and with a write-ahead log that was, as if nothing had
happened: everything that is written from then on is lost. So names are compared with what was opened, by device and
inode. Descriptors of our own would not do: closing one would drop the locks that SQLite holds on the file.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...errors import StoreLost
from . import connection as connections

HEADER = 512
"""Bytes of the smallest database."""
Identity = tuple[int, int]
"""(device, inode)"""


class Files:
    """The database, its write-ahead log and the log's index, as they were when the store was opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file, self._wal, self._shm = Path(path), Path(path + "-wal"), Path(path + "-shm")
        self._database: Identity | None = None
        self._log: list[Identity | None] = [None, None]
        self._log_lost = False
        self._size = 0

    def opening(self) -> None:
        """Before SQLite opens the database, for the first time or again."""
        if self._database is None:
            self._database = _identity(self._file)
        else:
            self.check()

    def opened(self) -> None:
        """After that: a log that nobody had open was made anew."""
        self._log_lost = False
        self.check()
        self._log = [_identity(self._wal), _identity(self._shm)]

    def check(self) -> None:
        """Raise StoreLost where the database is not the one that was opened."""
        try:
            seen = self._file.stat()
        except OSError:
            raise self._lost("was deleted or moved away") from None
        if (seen.st_dev, seen.st_ino) != self._database:
            raise self._lost("was replaced by another file")
        if seen.st_size < self._size:
            self._check_shrunk(seen.st_size)
        self._size = seen.st_size
        if self._log_lost:
            self._check_log()

    def check_all(self) -> None:
        """The same, also for its write-ahead log."""
        self.check()
        self._check_log()

    def _check_log(self) -> None:
        self._log_lost = self._log != [_identity(self._wal), _identity(self._shm)]
        if self._log_lost:
            raise self._lost("lost its write-ahead log (-wal or -shm was deleted, moved or replaced)")

    def close(self, connection: sqlite3.Connection | None) -> None:
        """Close a connection; but SQLite, as it closes the last one, must not delete the log of another store."""
        if connection is None:
            return
        if _identity(self._wal) in (None, self._log[0]):
            connection.close()
        else:
            connections.forget(connection)

    def _check_shrunk(self, size: int) -> None:
        """A VACUUM makes the file smaller too, and leaves it sound."""
        if size >= HEADER:
            try:
                fresh = connections.connect_reader(self.path, busy_timeout=5.0)
                try:
                    if fresh.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                        return
                finally:
                    fresh.close()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                    return  # the next look comes soon
            except sqlite3.DatabaseError:
                pass
        raise self._lost(f"was truncated to {size} bytes")

    def _lost(self, what: str) -> StoreLost:
        return StoreLost(f"{self.path} {what} while this process had it open")


def _identity(path: Path) -> Identity | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino
