"""State files of the supervisors on this machine: one private file each, valid only while its process is alive."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from ..app import Holdfast, parts_of
from ..core.clock import SystemClock
from ..core.errors import ConfigError
from .processes.process_table import is_alive, own_start, signal_process


class Running(msgspec.Struct, frozen=True):
    """A supervisor, as recorded in its state file."""

    pid: int
    start: str
    boot: str
    store: str
    count: int
    log: str | None = None

    @property
    def alive(self) -> bool:
        """Whether exactly that process is still alive."""
        return self.boot == SystemClock().boot_id() and is_alive(self.pid, self.start)

    def signal(self, number: int) -> bool:
        """Signal exactly that process; False if it has ended."""
        return self.boot == SystemClock().boot_id() and signal_process(self.pid, self.start, number)


def folder() -> Path:
    """The folder of the state files: XDG_STATE_HOME/holdfast, else a private folder in the temporary directory."""
    base = os.environ.get("XDG_STATE_HOME")
    home = Path(base) if base else Path.home() / ".local" / "state"
    places = home / "holdfast", Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    for place in places:
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = place.lstat()
        except OSError:
            continue
        if about.st_uid == os.getuid() and not place.is_symlink():
            if about.st_mode & 0o077:
                place.chmod(0o700)
            if os.access(place, os.W_OK):
                return place
    raise ConfigError(
        f"neither {places[0]} nor {places[1]} can be a private, writable folder for the state file of the supervisor:"
        " set XDG_STATE_HOME to a folder of this user"
    )


def store_key(app: Holdfast) -> str:
    """A hash that identifies the store without revealing its URL."""
    # A file store knows its absolute path, however the URL spells it.
    parts = parts_of(app)
    place: str = getattr(parts.runtime.store, "path", parts.url)
    return hashlib.blake2b(place.encode(), digest_size=8).hexdigest()


def log_path(key: str) -> Path:
    return folder() / f"{key}.log"


def enter(key: str, count: int, log: str | None = None) -> Path:
    me = Running(os.getpid(), own_start(), SystemClock().boot_id(), key, count, log)
    path = folder() / f"{key}-{me.pid}.json"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(me))
    return path


def running(key: str | None = None) -> list[Running]:
    """The live supervisors (of one store); removes the files of those that ended."""
    found: list[Running] = []
    for path in sorted(folder().glob(f"{key or '*'}-*.json")):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=Running)
        except (OSError, msgspec.MsgspecError):
            continue
        if one.alive:
            found.append(one)
        else:
            path.unlink(missing_ok=True)
    return found
