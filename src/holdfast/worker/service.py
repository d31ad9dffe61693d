"""What `worker start` is asked for, as one value that travels from the command to the supervisor to its workers."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec

from ..core.errors import ConfigError, HoldfastError, StoreLost, StoreRefused, StoreUnavailable
from ..core.operations import Holder
from ..observe.tally import Key

if TYPE_CHECKING:
    from ..app import Holdfast


class Service(msgspec.Struct, frozen=True, omit_defaults=True):
    """One supervisor with its workers. The store's URL travels in the environment: all can read a command line."""

    count: int = 1
    application: str | None = None
    shell: bool = False
    pass_env: tuple[str, ...] | None = None
    """Variables that shell jobs get; None leaves it to the app's setting."""
    queues: dict[str, int] | None = None
    concurrency: int | None = None
    lease: float | None = None
    grace: float | None = None
    drain: bool = False
    max_jobs: int | None = None
    max_memory: int | None = None
    reload: bool = False
    handover: bool = False
    log_level: str = "INFO"
    log_format: str = "auto"
    log: str | None = None
    """The file that everything is logged to, in the background."""
    metrics: str | None = None
    """Where to serve metrics, as HOST:PORT."""
    metrics_prefix: str = "holdfast"

    def app(self) -> Holdfast:
        """The application that the workers run."""
        from ..app import Holdfast, parts_of
        from ..loading import load_app

        app = Holdfast() if self.application is None else load_app(self.application)
        if self.shell or self.application is None:
            from .run.shell import allow_shell

            allow_shell(parts_of(app), self.pass_env)
        return app


class Refusal(msgspec.Struct, frozen=True):
    """Why workers could not start: an error, as it travels between processes."""

    kind: str
    words: str

    @classmethod
    def of(cls, error: HoldfastError) -> Refusal:
        known = (kind.__name__ for kind in type(error).__mro__ if kind in TRAVELS)
        words = error.what if isinstance(error, StoreLost) else str(error)
        return cls(next(known, HoldfastError.__name__), words)

    def error(self) -> HoldfastError:
        """The error that it was."""
        kind = next((kind for kind in TRAVELS if kind.__name__ == self.kind), HoldfastError)
        return kind(self.words)


TRAVELS = (ConfigError, StoreLost, StoreRefused, StoreUnavailable)


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says to its supervisor, one line each: who it is, that it is well, why it leaves."""

    holder: Holder | None = None
    url: str | None = None
    max_crashes: int = 3
    grace: float = 0.0
    """Seconds that its jobs get when it stops."""
    leaving: str | None = None
    """`drained`, `recycle`, or `stopped`: told to. A worker that says nothing of the kind has died."""
    refused: Refusal | None = None
    """Why it cannot work."""
    active: int = 0
    """Jobs that run there."""
    counted: tuple[tuple[Key, float], ...] = ()
    """What its metrics have counted since its last word."""


def parse_queues(text: str) -> dict[str, int]:
    """Queues with their weights: `mail:5,default:1`, or just `mail,default`."""
    found: dict[str, int] = {}
    for part in text.split(","):
        if not (part := part.strip()):
            continue
        match = re.fullmatch(r"(.+?)(?::(\d+))?", part)
        assert match is not None
        weight = int(match[2] or 1)
        if not 1 <= weight <= 1000:
            raise ConfigError(f"--queues {part}: the weight must be from 1 to 1000")
        found[match[1].strip()] = weight
    if not found:
        raise ConfigError("--queues names no queue: write for example --queues mail:5,default")
    return found


def ignore_signal(*_: object) -> None:
    """A handler that does nothing. Unlike SIG_IGN, it is not inherited by programs that a task starts."""


def resident(pid: int | None = None) -> int | None:
    """Bytes of memory that a process has in use; None where the machine does not say."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None
