"""The Lua scripts, put together from the files beside this one; the server knows each by the digest of its text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha1
from importlib.resources import files

import msgspec

from .names import rendered


class Script(msgspec.Struct, frozen=True):
    """One step of the server: its text, and the digest by which EVALSHA calls it."""

    name: str
    text: bytes
    sha: bytes


@cache
def _part(name: str) -> str:
    return rendered((files(__package__ or "") / "lua" / f"{name}.lua").read_text(encoding="utf-8"))


def _together(name: str, *parts: str) -> Script:
    """Each part is a function inside the one before: what it takes from further out costs it no search.

    Every call defines all functions anew, and in one flat text each of them looks for each variable that it uses among
    all that are used so: as long as the work itself, for a batch of one.
    """
    text = ("\nreturn (function()\n".join(parts) + "\nend)()" * (len(parts) - 1)).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


NEEDS = {
    "common": ("head",),
    "record_transition": ("head",),
    "records": ("head",),
    "enqueue_one": ("record_transition",),
    "limit_key": ("common",),
    "gather": ("limit_key",),
    "fair_order": ("limit_key",),
    "owner": ("key",),
    "key_owners": ("owner",),
    "enqueue": ("owner", "fair_order"),
    "note": ("place",),
    "settle": ("place",),
    "change": ("place",),
    "job": ("limit_key",),
    "wait": ("gather",),
    "limiter": ("wait", "job"),
    "claim": ("limiter",),
    "place": ("wait", "job", "key"),
    "read": ("job",),
    "get": ("read",),
    "find": ("read",),
    "expired": ("read",),
    "tidy": ("place",),
    "heartbeat": ("job",),
    "holders": ("job",),
}
"""What stands in front of each part."""
KINDS = ("enqueue", "note", "settle", "change", "claim")
"""The kinds of operation in a batch, in its order."""


def _with_needs(parts: Iterable[str], into: list[str]) -> list[str]:
    for part in parts:
        _with_needs(NEEDS.get(part, ()), into)
        if part not in into:
            into.append(part)
    return into


@cache
def script(name: str) -> Script:
    """The script of one name, with what it needs in front of it."""
    return _together(name, *map(_part, _with_needs(("common", name), [])))


@cache
def lone_script(name: str) -> Script:
    """A script that stands by itself: only what it says that it needs is in front of it."""
    return _together(name, *map(_part, _with_needs((name,), [])))


@cache
def write_script(*kinds: str) -> Script:
    """The script that does these kinds of operation: no more of them than a batch has, since each call defines them."""
    missing = [kind for kind in KINDS if kind not in kinds]
    absent = f"local {', '.join(missing)}\n" if missing else ""
    parts = _with_needs(("common", "record_transition", *(kind for kind in KINDS if kind in kinds)), [])
    return _together("write", *map(_part, parts), absent + _part("write"))
