"""A folder as a bucket: one file per object, on a disk of this machine.

A file appears whole or not at all: before a put returns, it is written under another name, synced, and linked to its
name (a rename would overwrite), and the folder is synced. So a kill or a power cut leaves a store that can be read.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import ConfigError, StoreLost
from .protocol import Listed, NotWritten, Refused

ASIDE = ".aside"
FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors after which nothing was created: FULL, no space; REFUSED, no permission."""
_numbers = itertools.count(1)


class FolderLost(StoreLost, NotWritten):
    """The folder was deleted or replaced."""


class Folder:
    """Objects as files below `path`. Its methods block: a disk answers sooner than a call to another thread takes."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self._unsynced: set[Path] = set()
        """Folders with new names that may not be on disk yet: they are synced before a read."""
        self._known: dict[Path, tuple[int, int]] = {}
        """The folders that were seen, by device and inode. Holdfast never removes one."""

    def __str__(self) -> str:
        return f"folder {self.path}"

    def make(self) -> None:
        """Create the folder, private to its user."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.path / ASIDE).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder {self.path} cannot be created: {error.strerror}; correct this, or name another folder in"
                " the URL"
            ) from error
        self._check(self.path)

    def _check(self, folder: Path) -> None:
        """Raise FolderLost if a folder is not the one that was seen before: a new folder has another log."""
        for each in (self.path, folder):
            known = self._known.get(each)
            try:
                seen = each.stat()
            except (FileNotFoundError, NotADirectoryError) as error:
                if known is not None:
                    raise FolderLost(f"folder {each} was deleted or moved while this process had it open") from error
            except OSError as error:  # may be temporary: no proof of a loss
                raise NotWritten(
                    f"folder {each} cannot be accessed: {error.strerror}; nothing was written. Check its permissions"
                    " and disk"
                ) from error
            else:
                if self._known.setdefault(each, identity := (seen.st_dev, seen.st_ino)) != identity:
                    raise FolderLost(f"folder {each} was replaced by another folder while this process had it open")

    async def get(self, key: str) -> bytes | None:
        file = self.path / key
        if file.parent in self._unsynced:
            self._sync_names(file.parent)
        try:
            return file.read_bytes()
        except FileNotFoundError:
            self._check(file.parent)
            return None

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._put(self.path / key, data)

    def _put(self, target: Path, data: bytes) -> bool:
        aside = self.path / ASIDE / f"{os.getpid()}-{next(_numbers)}"
        self._check(target.parent)
        try:
            descriptor = self._create(aside)
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                if not target.parent.exists():
                    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    _sync(target.parent.parent)
            except OSError as error:
                raise _not_written(target, error) from error
            try:
                os.link(aside, target)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in (*FULL, *REFUSED):
                    raise _not_written(target, error) from error
                raise
        finally:
            with contextlib.suppress(OSError):  # in a read-only folder, unlink fails even if there is no such file
                aside.unlink()
        self._unsynced.add(target.parent)
        self._sync_names(target.parent)
        return True

    def _sync_names(self, folder: Path) -> None:
        _sync(folder)
        self._unsynced.discard(folder)

    def _create(self, aside: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            return os.open(aside, flags, 0o600)
        except FileNotFoundError:
            self.make()
        except OSError as error:
            raise _not_written(aside, error) from error
        return os.open(aside, flags, 0o600)

    async def list(self, prefix: str, after: str | None = None) -> Sequence[Listed]:
        folder = self.path / prefix.rpartition("/")[0]
        found: list[Listed] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    key = str(Path(entry.path).relative_to(self.path))
                    if key.startswith(prefix) and (after is None or key > after) and entry.is_file():
                        try:
                            seen = entry.stat()
                        except FileNotFoundError:
                            continue  # deleted during the listing
                        found.append(Listed(key, seen.st_mtime_ns // 1000, seen.st_size))
        except FileNotFoundError:
            self._check(folder)
            return []
        return sorted(found, key=lambda listed: listed.key)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            (self.path / key).unlink(missing_ok=True)


def _not_written(target: Path, error: OSError) -> NotWritten:
    kind = Refused if error.errno in REFUSED else NotWritten
    return kind(
        f"file {target} cannot be written: {error.strerror}; nothing was written. Free disk space, or give this user"
        " write permission"
    )


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
