"""The lock file beside the database, locked during every write, checkpoint, open and close by Holdfast.

SQLite waits for its own write lock by sleeping and retrying, so that with many processes some wait long; the kernel
queues waiters of this lock. It also protects SQLite versions in which a write that races a checkpoint can be lost
(`version.py`). The lock belongs to the open file, not to the process: two stores in one process exclude each other too.
"""

from __future__ import annotations

import fcntl
import os

from ...core.errors import ConfigError

_open_files: set[int] = set()


def _close_in_child() -> None:
    """Close inherited lock files in a forked child: while it has them open, a crash of the parent would not unlock."""
    for file in _open_files:
        os.close(file)
    _open_files.clear()


os.register_at_fork(after_in_child=_close_in_child)


class FileLock:
    """An exclusive lock, which the kernel releases when its process ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        try:
            self.file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"the lock file {self._path} cannot be created or opened: {error.strerror}; check the permissions and"
                " the disk of its folder"
            ) from error
        _open_files.add(self.file)

    def acquire(self) -> None:
        """Wait for the lock, without the GIL. If the file was deleted, lock the new one, as other processes do."""
        fcntl.flock(self.file, fcntl.LOCK_EX)
        while not os.fstat(self.file).st_nlink:
            self.close()
            self._open()
            fcntl.flock(self.file, fcntl.LOCK_EX)

    def acquire_at_once(self) -> bool:
        """Take the lock if no process has it."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return os.fstat(self.file).st_nlink > 0

    def release(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self.file in _open_files:
            _open_files.discard(self.file)
            os.close(self.file)
