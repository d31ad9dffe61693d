"""Checks of the file's location: an existing folder, on a local disk, private to its user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ...core.errors import ConfigError

NETWORK = frozenset({
    "afpfs", "afs", "autofs.nfs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph-fuse", "fuse.cephfs", "fuse.gcsfuse",
    "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.smbnetfs", "glusterfs", "gpfs", "lustre", "ncpfs",
    "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb2", "smb3", "smbfs", "webdav", "fuse.davfs", "davfs",
})  # fmt: skip
"""Network file systems. Not 9p and virtiofs: virtual machines use them as local disks."""

Mount = tuple[str, str]
"""(mount point, type of file system)"""


def check(path: str) -> None:
    """Raise ConfigError if a database file must not or cannot be at this path."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise ConfigError(f"cannot create {path}: the folder {folder} does not exist; create it first")
    if Path(path).is_dir():
        raise ConfigError(f"{path} is a folder; a SQLite store is a file: name a file in the URL")
    _refuse_second_name(path, mounted := mounts())
    _refuse_cut(path)
    kind = file_system(str(folder), mounted)
    if kind in NETWORK:
        raise ConfigError(
            f"{path} is on a network file system ({kind}): SQLite's write-ahead log needs memory that all processes"
            " share, so processes on two machines would corrupt the file. Move it to a local disk; for several machines"
            " use postgresql:// or redis://"
        )


def _refuse_second_name(path: str, mounted: list[Mount]) -> None:
    """Refuse a second name of the file: the write-ahead log is found by name, so each name would have its own log."""
    try:
        names = Path(path).stat().st_nlink
    except FileNotFoundError:
        return
    if names > 1:
        raise ConfigError(
            f"{path} has {names} names (hard links): programs that open it by different names would lose each other's"
            f" jobs. Stop them and keep one name; `find DIRECTORY -samefile {path}` lists all names. Symbolic links are"
            " fine"
        )
    if any(point == path for point, _ in mounted):
        raise ConfigError(
            f"{path} is a mount point of a single file: its write-ahead log would be on another file system, and"
            " programs outside of the mount would lose jobs. Mount its folder instead"
        )


def _refuse_cut(path: str) -> None:
    """Refuse an empty database with a log: it was truncated or deleted, and SQLite would discard the log."""
    try:
        # The log first: a process that creates the database just now writes the database before its log.
        log, empty = Path(path + "-wal").stat().st_size, Path(path).stat().st_size == 0
    except FileNotFoundError:
        return
    if empty and log:
        raise ConfigError(
            f"{path} is empty, but its write-ahead log {path}-wal is not: the database was deleted or truncated. Stop"
            " every program that uses it. Then restore a backup, or delete the -wal and -shm files too to begin with an"
            " empty store"
        )


def make_private(path: str) -> None:
    """Create the file with mode 600 if there is none. SQLite gives its -wal and -shm the same mode.

    An existing file is never opened here: closing it would drop the locks that SQLite holds on it in this process.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(
            f"file {path} cannot be created: {error.strerror}; correct this, or name another file in the URL"
        ) from error


def file_system(folder: str, mounted: list[Mount]) -> str:
    """The type of the file system that a folder is on; empty if unknown. Later mounts hide earlier ones."""
    best, kind = -1, ""
    for point, its_kind in mounted:
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), its_kind
    return kind


def mounts() -> list[Mount]:
    """The mounts of this machine; empty if they cannot be read."""
    try:
        if sys.platform == "darwin":
            asked = subprocess.run(["/sbin/mount"], capture_output=True, check=False, timeout=5)
            return parse_mount(asked.stdout.decode(errors="replace"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return parse_mountinfo(file.read())
    except (OSError, subprocess.SubprocessError):
        return []


def parse_mountinfo(text: str) -> list[Mount]:
    r"""Linux: `36 35 98:0 /root /mount\040point rw,noatime shared:1 - ext4 /dev/sda1 rw`."""
    found: list[Mount] = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if dash and kind and len(fields) >= 5:
            found.append((_unescape(fields[4]), kind))
    return found


def _unescape(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


def parse_mount(text: str) -> list[Mount]:
    """Macs: `//user@host/share on /Volumes/share (smbfs, nodev, nosuid)`."""
    found: list[Mount] = []
    for line in text.splitlines():
        before, _, options = line.rpartition(" (")
        _, on, point = before.partition(" on ")
        if on and options:
            found.append((point, options.rstrip(")").split(",")[0].strip()))
    return found
