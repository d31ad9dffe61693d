"""The options of `worker start`, as one value that the command passes to the supervisor and its workers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from ..core.errors import ConfigError, HoldfastError, StoreLost, StoreRefused, StoreUnavailable
from ..core.operations import Holder
from ..observe.tally import Key

if TYPE_CHECKING:
    from ..app import Holdfast


class Service(msgspec.Struct, frozen=True, omit_defaults=True):
    """One supervisor with its workers. The store's URL is passed in the environment: command lines are public."""

    count: int = 1
    application: str | None = None
    imports: tuple[str, ...] = ()
    """Modules that define its tasks."""
    engine: str = ""
    """The name of its store, such as `sqlite`."""
    shell: bool = False
    pass_env: tuple[str, ...] | None = None
    """Environment variables that shell jobs get; None: the app's setting."""
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
    """The log file of a background supervisor and its workers."""
    metrics: str | None = None
    """Where to serve metrics, as HOST:PORT."""
    metrics_prefix: str = "holdfast"

    def app(self) -> Holdfast:
        """The application that the workers run."""
        from ..app import Holdfast, parts_of
        from ..loading import load_app

        app = Holdfast() if self.application is None else load_app(self.application, self.imports)
        if self.shell or self.application is None:
            from .run.shell import allow_shell

            allow_shell(parts_of(app), self.pass_env)
        return app


class Refusal(msgspec.Struct, frozen=True):
    """Why workers could not start: an error in the form that is sent between processes."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: HoldfastError) -> Refusal:
        known = (kind.__name__ for kind in type(error).__mro__ if kind in SENT_ERRORS)
        message = error.what if isinstance(error, StoreLost) else str(error)
        return cls(next(known, HoldfastError.__name__), message)

    def error(self) -> HoldfastError:
        kind = next((kind for kind in SENT_ERRORS if kind.__name__ == self.kind), HoldfastError)
        return kind(self.message)


SENT_ERRORS = (ConfigError, StoreLost, StoreRefused, StoreUnavailable)


RETIRES = ("stop", "drain")
"""Requests of operators after which a worker process is not replaced."""


class StatusMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A status message of a worker to its supervisor, one line of JSON: identity, liveness, or why it exits."""

    holder: Holder | None = None
    url: str | None = None
    max_crashes: int = 3
    grace: float = 0.0
    """Seconds that its jobs get to finish when it stops."""
    leaving: str | None = None
    """`drained`, `recycle`, `retired` (by an operator) or `stopped` (by a signal). A worker that exits without sending
    it has crashed."""
    described: Holder | None = None
    """Its identity, after its state or concurrency has changed."""
    request: str | None = None
    """What an operator has requested of it (`client/control.py`)."""
    now: bool = False
    """The requested stop has no grace period."""
    refused: Refusal | None = None
    """Why the worker cannot run."""
    active: int = 0
    """Jobs that run in the worker now."""
    counted: tuple[tuple[Key, float], ...] = ()
    """Metric counts since its last message."""


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
