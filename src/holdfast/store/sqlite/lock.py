"""One lock file beside the database, held around every write, checkpoint, open and close of ours.

SQLite's own write lock is waited for by sleeping and trying again, so under many processes some wait long; this one is
waited for in the kernel. It also guards SQLite versions in which a write that races a checkpoint can be lost
(`version.py`). It is a lock of the open file, not of the process: two stores in one process exclude each other too.
"""

from __future__ import annotations

import fcntl
import os

from ...core.errors import ConfigError

_open_files: set[int] = set()


def _close_in_child() -> None:
    """A forked child shares the parent's open lock file: were it to keep it, the parent's death would not unlock."""
    for file in _open_files:
        os.close(file)
    _open_files.clear()


os.register_at_fork(after_in_child=_close_in_child)


class FileLock:
    """An exclusive lock that ends with its holder, however it ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot make the lock file {self._path}: {error.strerror}") from error
        _open_files.add(self._file)

    def acquire(self) -> None:
        """Wait for the lock, without the GIL. Where the file was deleted, others lock a new one, and so does this."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        while not os.fstat(self._file).st_nlink:
            self.close()
            self._open()
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file in _open_files:
            _open_files.discard(self._file)
            os.close(self._file)
