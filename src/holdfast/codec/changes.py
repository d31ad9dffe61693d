"""Finds values that JSON would change, by comparing the input with the decoded output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, cast

SCALARS = frozenset({str, int, float, bool, type(None)})
"""The types that JSON keeps as they are."""


class Change(NamedTuple):
    """A value that JSON turns into something else."""

    path: str
    was: str
    becomes: str

    def __str__(self) -> str:
        return f"JSON would turn the {self.was}{place(self.path)} into {self.becomes}"


def changed(value: Any, back: Any, *, exact: bool) -> Change | None:
    """Find a value that is decoded as plain JSON although it was something else.

    An annotation may ask for another type of the same shape (a list for a tuple, a dataclass for a dict);
    `exact`, without an annotation, nothing may change.
    """
    if type(value) in SCALARS:
        return None
    if isinstance(back, list | tuple):
        return _in_list(value, cast("Collection[Any]", back), exact)
    if isinstance(back, dict):
        return _in_dict(value, cast("dict[Any, Any]", back), exact)
    if back is None or isinstance(back, str | int | float):
        kept = isinstance(value, str | int | float) and not (exact and isinstance(value, Enum))
        return None if kept else _change(value, back)
    return _in_object(value, back)


def _in_list(value: Any, back: Collection[Any], exact: bool) -> Change | None:
    if not isinstance(value, list if exact else Collection):
        return _change(value, back)
    items = cast("Collection[Any]", value)
    if SCALARS.issuperset(map(type, items)):
        return None
    pairs = enumerate(zip(items, back, strict=False))
    return _first(((f"[{index}]", item, other) for index, (item, other) in pairs), exact)


def _in_dict(value: Any, back: dict[Any, Any], exact: bool) -> Change | None:
    if not isinstance(value, Mapping):
        return _change(value, back)
    items = cast("Mapping[Any, Any]", value)
    for key in items:
        if key not in back or (exact and type(key) is not str):
            return _change(key, "")._replace(path=f" key {key!r}")
    return _first(((f".{key}", item, back[key]) for key, item in items.items()), exact)


def _in_object(value: Any, back: Any) -> Change | None:
    if isinstance(back, datetime) and isinstance(value, datetime):
        moved = value.tzinfo is not None and value.timestamp() != back.timestamp()
        return Change("", "datetime", "a different time: its offset has seconds (use UTC)") if moved else None
    if type(value) is not type(back):
        # What was written of a subclass is read as its parent; an equal one (a path, a uuid) loses nothing.
        return None if isinstance(value, Collection) or value == back else _change(value, back)
    kind = cast("Any", type(value))
    names: Iterable[str] = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", ())
    return _first(((f".{name}", getattr(value, name, None), getattr(back, name, None)) for name in names), exact=False)


def _first(items: Iterable[tuple[str, Any, Any]], exact: bool) -> Change | None:
    for step, value, back in items:
        if change := changed(value, back, exact=exact):
            return change._replace(path=step + change.path)
    return None


def _change(value: object, back: object) -> Change:
    return Change("", name_of_type(type(value)), name_of_type(type(back)))


def place(path: str) -> str:
    """A position inside a value, as text."""
    return f" at {path.removeprefix('.').strip()}" if path else ""


def name_of_type(kind: Any) -> str:
    """A type as it is written in an annotation."""
    name: str = getattr(kind, "__name__", None) or str(kind)
    return "Path" if name in ("PosixPath", "WindowsPath") else name
