"""Whether the files that SQLite has open are still those that their names stand for.

SQLite goes on with a file that was deleted, replaced or moved, and with a write-ahead log that was, as if nothing had
happened: everything that is written from then on is lost. So names are compared with what was opened, by device and
inode. Descriptors of our own would not do: closing one would drop the locks that SQLite holds on the file.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from contextlib import suppress
from pathlib import Path

from ...core.errors import StoreLost, StoreUnavailable
from . import connection as connections

HEADER = 512
"""Bytes of the smallest database."""
MAGIC = b"SQLite format 3\0"
Identity = tuple[int, int]
"""(device, inode)"""


class Files:
    """The database, its write-ahead log and the log's index, as they were when the store was opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file, self._wal, self._shm = Path(path), Path(path + "-wal"), Path(path + "-shm")
        self._database: Identity | None = None
        self._log: list[Identity | None] = [None, None]
        self._log_sound = True
        self._size = 0
        self._looking = threading.Lock()

    def opening(self) -> None:
        """Before SQLite opens the database, for the first time or again."""
        if self._database is None:
            self._database = _identity(self._file)
        else:
            self.check()

    def opened(self) -> None:
        """After that: a log that nobody had open was made anew."""
        self._log_sound = True
        self.check()
        self._log = [_identity(self._wal), _identity(self._shm)]

    def check(self) -> None:
        """Raise StoreLost where the database is not the one that was opened, StoreUnavailable where nobody can tell."""
        with self._looking:
            self._check_database()
            if not self._log_sound:
                self._check_log()

    def check_all(self) -> None:
        """The same, also for its write-ahead log."""
        with self._looking:
            self._log_sound = False  # until it is seen: where this look fails, the next operation begins with another
            self._check_database()
            self._check_log()

    def _check_database(self) -> None:
        seen = _seen(self._file)
        if seen is None:
            raise self._lost("was deleted or moved away")
        if (seen.st_dev, seen.st_ino) != self._database:
            raise self._lost("was replaced by another file")
        if seen.st_size < self._size and not self._is_whole(seen.st_size):
            raise self._lost(f"was truncated to {seen.st_size} bytes")
        self._size = seen.st_size

    def _check_log(self) -> None:
        self._log_sound = self._log == [_identity(self._wal), _identity(self._shm)]
        if not self._log_sound:
            raise self._lost("lost its write-ahead log (-wal or -shm was deleted, moved or replaced)")

    def close(self, connection: sqlite3.Connection | None) -> None:
        """Close a connection; but SQLite, as it closes the last one, must not delete the log of another store."""
        if connection is None:
            return
        try:
            own = _identity(self._wal) in (None, self._log[0])
        except StoreUnavailable:
            own = False
        if own:
            connection.close()
        else:
            connections.forget(connection)

    def _is_whole(self, size: int) -> bool:
        """Whether the file is as long as its header says. A VACUUM makes it shorter too, and says so there.

        Some pages of the header's count may still be in the log alone, while a checkpoint runs or after one that
        readers held up: as many as the log's index has frames that were not copied. Looked at in this order, what a
        checkpoint does meanwhile makes the file longer, and never seems a loss.
        """
        if size < HEADER:
            return False
        header, index = _first_bytes(self._database), _first_bytes(self._log[1])
        if header is None or index is None:
            return True  # not open here: SQLite judges it as it opens it
        page_size, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
        last_frame, copied = (int.from_bytes(index[at : at + 4], sys.byteorder) for at in (16, 96))
        now = _seen(self._file)
        size = size if now is None else max(size, now.st_size)
        missing = pages - size // (65536 if page_size == 1 else max(page_size, HEADER))
        return header.startswith(MAGIC) and missing <= max(0, last_frame - copied)

    def _lost(self, what: str) -> StoreLost:
        return StoreLost(f"{self.path} {what} while this process had it open")


def _seen(path: Path) -> os.stat_result | None:
    """What the name stands for; None where that is certainly nothing."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be looked at: {error.strerror}; nothing was written") from error


def _identity(path: Path) -> Identity | None:
    seen = _seen(path)
    return None if seen is None else (seen.st_dev, seen.st_ino)


def _first_bytes(file: Identity | None) -> bytes | None:
    """The first bytes of a file, by a descriptor that SQLite has open: closing another would drop its locks."""
    try:
        for each in Path("/dev/fd").iterdir():
            with suppress(OSError):  # closed meanwhile, or not open for reading
                seen = os.fstat(int(each.name))
                if (seen.st_dev, seen.st_ino) == file:
                    return os.pread(int(each.name), 100, 0)
    except OSError:
        pass
    return None
