"""Detects that the database or its write-ahead log was deleted, replaced or moved while SQLite has it open.

SQLite continues with the old file without an error, and everything that is written from then on is lost. So paths are
compared with the opened files, by device and inode. Opening the file again for that is not possible: closing a second
descriptor would drop the locks that SQLite holds on the file.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable
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
        self._looking = threading.RLock()  # which only its owner can release

    def opening(self) -> None:
        """Called before SQLite opens the database, for the first time or again."""
        if self._database is None:
            self._database = _identity(self._file)
        else:
            self.check()

    def opened(self) -> None:
        """Called after SQLite opened the database; a log that no process had open is new."""
        self._log_sound = True
        self.check()
        self._log = [_identity(self._wal), _identity(self._shm)]

    def check(self) -> None:
        """Raise StoreLost if the path is not the opened database, StoreUnavailable if that cannot be determined."""
        self._exclusively(self._check)

    def check_all(self) -> None:
        """Like `check`, also for its write-ahead log."""
        self._exclusively(self._check_all)

    def _exclusively(self, check: Callable[[], None]) -> None:
        """Not by `with`: on Python 3.14 an exception of a signal handler could come between it and its block."""
        try:
            self._looking.acquire()
            check()
        finally:
            try:  # noqa: SIM105  # a signal may raise in `suppress`
                self._looking.release()
            except RuntimeError:
                pass  # it was interrupted before it had the lock

    def _check(self) -> None:
        self._check_database()
        if not self._log_sound:
            self._check_log()

    def _check_all(self) -> None:
        self._log_sound = False  # until it is checked: if that fails, the next operation checks it again
        self._check_database()
        self._check_log()

    def _check_database(self) -> None:
        seen = _seen(self._file)
        if seen is None:
            raise self._lost("was deleted or moved")
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
        """Close a connection, unless SQLite would delete the log of another store as it closes its last one."""
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
        """Whether the file has as many pages as its header states. A VACUUM shortens both.

        Some of these pages may still be only in the log, while a checkpoint runs or after one that readers delayed: as
        many as the log's index has frames that were not copied. Read in this order, a concurrent checkpoint only makes
        the file longer, and never looks like a loss.
        """
        if size < HEADER:
            return False
        header, index = _first_bytes(self._database), _first_bytes(self._log[1])
        if header is None or index is None:
            return True  # not open in this process: SQLite checks it when it opens it
        page_size, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
        last_frame, copied = (int.from_bytes(index[at : at + 4], sys.byteorder) for at in (16, 96))
        now = _seen(self._file)
        size = size if now is None else max(size, now.st_size)
        missing = pages - size // (65536 if page_size == 1 else max(page_size, HEADER))
        return header.startswith(MAGIC) and missing <= max(0, last_frame - copied)

    def _lost(self, what: str) -> StoreLost:
        return StoreLost(f"the database {self.path} {what} while this process had it open")


def _seen(path: Path) -> os.stat_result | None:
    """The file at a path; None if there certainly is none."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(
            f"file {path} cannot be examined: {error.strerror}; nothing was written. Check its permissions and disk"
        ) from error


def _identity(path: Path) -> Identity | None:
    seen = _seen(path)
    return None if seen is None else (seen.st_dev, seen.st_ino)


def _first_bytes(file: Identity | None) -> bytes | None:
    """The first bytes of a file, read by SQLite's own descriptor: closing another one would drop its locks."""
    try:
        for each in Path("/dev/fd").iterdir():
            with suppress(OSError):  # closed meanwhile, or not open for reading
                seen = os.fstat(int(each.name))
                if (seen.st_dev, seen.st_ino) == file:
                    return os.pread(int(each.name), 100, 0)
    except OSError:
        pass
    return None
