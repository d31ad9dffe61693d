"""What is started once, for all tests of a process, and ended after the last of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol, TypeVar


class Removable(Protocol):
    def remove(self) -> None: ...


T = TypeVar("T", bound=Removable)
_ends = ExitStack()


def until_the_end(started: T) -> T:
    """Have it removed after the last test. At exit would be too late: xdist kills a process that takes long to end."""
    _ends.callback(started.remove)
    return started


def end() -> None:
    """Remove everything, the last started first."""
    _ends.close()
