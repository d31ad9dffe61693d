"""The Lua scripts, assembled from the files in `lua/`; EVALSHA calls each by the digest of its text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha1
from importlib.resources import files

import msgspec

from .names import rendered


class Script(msgspec.Struct, frozen=True):
    """One script: its text, and the digest by which EVALSHA calls it."""

    name: str
    text: bytes
    sha: bytes


@cache
def _part(name: str) -> str:
    return rendered((files(__package__ or "") / "lua" / f"{name}.lua").read_text(encoding="utf-8"))


def _together(name: str, *parts: str) -> Script:
    """Nests each part as a function inside the one before, which makes Lua's lookup of outer variables fast.

    Every call defines all functions again; in one flat text, resolving their variables would take as long as the work
    itself for a batch of one.
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
"""The parts that each part needs before it."""
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
    """The script of one name, after `common` and the parts that it needs."""
    return _together(name, *map(_part, _with_needs(("common", name), [])))


@cache
def lone_script(name: str) -> Script:
    """A script without `common`, after only the parts that it needs."""
    return _together(name, *map(_part, _with_needs((name,), [])))


@cache
def write_script(*kinds: str) -> Script:
    """The write script for these kinds of operation only, since each call defines all its functions."""
    missing = [kind for kind in KINDS if kind not in kinds]
    absent = f"local {', '.join(missing)}\n" if missing else ""
    parts = _with_needs(("common", "record_transition", *(kind for kind in KINDS if kind in kinds)), [])
    return _together("write", *map(_part, parts), absent + _part("write"))
