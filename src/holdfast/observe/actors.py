"""Who acts: the actor of the current call, and the action that it is part of, for the audit log."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import msgspec

from ..core.job import Record
from ..core.lifecycle import storable
from ..core.undo import Version, version_of

ACTOR_LIMIT = 200
"""Maximum characters of an actor's name."""
IDS_LIMIT = 1000
"""Maximum ids of changed jobs in an audit entry."""


class Actor(msgspec.Struct, frozen=True):
    """Who acts: a name, and the surface through which it acts."""

    name: str
    surface: str
    """`python`, `cli`, `http`, `dashboard` or `django`."""


class Action:
    """The operator action that the current call is part of. The code that acts adds what only it knows."""

    __slots__ = ("before", "changed", "error", "jobs", "left", "target", "versions")

    def __init__(self) -> None:
        self.before: dict[str, Any] = {}
        """What the action replaced: the state of a job, the value of a setting."""
        self.changed = 0
        """Jobs that were changed."""
        self.error: str | None = None
        """Why it failed, if it returned nevertheless."""
        self.jobs: dict[str, list[str]] = {}
        """The ids of the first IDS_LIMIT changed jobs, by their state before."""
        self.versions: dict[str, list[Version | None]] = {}
        """The versions of these jobs before, in the same order, for undo."""
        self.left: str | None = None
        """The value of the record that it wrote, for undo."""
        self.target: dict[str, Any] = {}
        """What it acted on, besides its arguments: the id of a new job."""


_actor: ContextVar[Actor | None] = ContextVar("holdfast_actor", default=None)
action: ContextVar[Action | None] = ContextVar("holdfast_action", default=None)
"""The action that the current call is part of; None outside of an action."""


def current_actor() -> Actor:
    """The actor of the current call: as `acting` has set it, else this process."""
    return _actor.get() or named(f"{program()}[{os.getpid()}]@{socket.gethostname()}", "python")


def named(name: str, surface: str) -> Actor:
    """An actor of this name, which may have any characters."""
    return Actor(storable(name)[:ACTOR_LIMIT], surface)


def program() -> str:
    """The name of this process's program."""
    return Path(sys.argv[0]).name or "python" if sys.argv else "python"


def user() -> Actor:
    """The user of this machine who runs a command."""
    import getpass  # late: only commands need it

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # in a container without an entry for this user
        name = f"uid {os.getuid()}"
    return named(f"{name}@{socket.gethostname()}", "cli")


@contextmanager
def acting(actor: Actor) -> Generator[None]:
    """Within the block, this actor acts."""
    before = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(before)


def note_before(**values: Any) -> None:
    """Add to the audit entry of the current action what it is about to replace."""
    if (now := action.get()) is not None:
        now.before.update(values)


def note_target(**values: Any) -> None:
    """Add to the audit entry of the current action what it has acted on, besides its arguments."""
    if (now := action.get()) is not None:
        now.target.update(values)


def note_changed(before: Record) -> None:
    """Add to the audit entry of the current action a job that it has changed, as it was before."""
    if (now := action.get()) is not None:
        now.changed += 1
        if now.changed <= IDS_LIMIT:
            now.jobs.setdefault(str(before.state), []).append(before.id)
            now.versions.setdefault(str(before.state), []).append(version_of(before))


def note_left(value: bytes) -> None:
    """Add to the audit entry of the current action the record that it has written: undo recognises it."""
    if (now := action.get()) is not None:
        now.left = value.decode()


def note_error(text: str) -> None:
    """Add to the audit entry of the current action that it failed, in part or as a whole, though it returns."""
    if (now := action.get()) is not None:
        now.error = text
