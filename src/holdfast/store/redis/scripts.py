"""The Lua scripts, put together from the files beside this one; the server knows each by the digest of its text."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files

import msgspec


class Script(msgspec.Struct, frozen=True):
    """One step of the server: its text, and the digest by which EVALSHA calls it."""

    name: str
    text: bytes
    sha: bytes


@cache
def _part(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def _together(name: str, *parts: str) -> Script:
    text = "\n".join(parts).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def script(name: str, *with_parts: str) -> Script:
    """The script of one name, with what it needs in front of it."""
    return _together(name, _part("common"), *(_part(part) for part in with_parts), _part(name))


KINDS = ("enqueue", "note", "settle", "change", "claim")
"""The kinds of operation in a batch, in its order."""


@cache
def write_script(*kinds: str) -> Script:
    """The script that does these kinds of operation: no more of them than a batch has, since each call defines them."""
    placing = [_part("place")] if {"note", "settle", "change"} & set(kinds) else []
    declared = f"local {', '.join(KINDS)}\n"
    parts = [_part(kind) for kind in KINDS if kind in kinds]
    return _together("write", _part("common"), *placing, declared, *parts, _part("write"))
