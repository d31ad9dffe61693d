"""Garbage collection of a command: rare while it imports, which makes no garbage; as usual while it runs."""

from __future__ import annotations

import gc

IMPORTING = 100_000
"""New objects before a collection; a command imports half as many. Not off: no command runs without collections."""
_USUAL = gc.get_threshold()


def postpone() -> None:
    """At the start of a command."""
    gc.set_threshold(IMPORTING)


def resume() -> None:
    """After the imports; what they made is not looked at again."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
