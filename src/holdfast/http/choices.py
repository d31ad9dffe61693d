"""Which words a field takes, where it was given another: msgspec's own error names only that one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect


def listing(kind: Any, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same decoder of a type, whose errors say which words a field takes."""

    def decoded(given: Any) -> Any:
        try:
            return decode(given)
        except msgspec.ValidationError as error:
            place = re.fullmatch(r"Invalid enum value .* - at `\$(.*)`", str(error), re.DOTALL)
            words = () if place is None else _words([inspect.type_info(kind)], re.findall(r"\.\w+|\[", place[1]))
            if not words:
                raise
            raise msgspec.ValidationError(f"{error}; there are: {', '.join(words)}") from None

    return decoded


def _words(kinds: list[inspect.Type], path: list[str]) -> list[str]:
    """The words of what lies at the end of a path into types: names of fields, and `[` for an item of a list."""
    found: list[str] = []
    for kind in kinds:
        if isinstance(kind, inspect.Metadata):
            found += _words([kind.type], path)
        elif isinstance(kind, inspect.UnionType):
            found += _words(list(kind.types), path)
        elif isinstance(kind, inspect.LiteralType) and not path:
            found += map(str, kind.values)
        elif isinstance(kind, inspect.EnumType) and not path:
            found += [str(one.value) for one in kind.cls]
        elif isinstance(kind, inspect.ListType) and path[:1] == ["["]:
            found += _words([kind.item_type], path[1:])
        elif isinstance(kind, inspect.StructType) and path:
            found += _words([one.type for one in kind.fields if f".{one.encode_name}" == path[0]], path[1:])
    return found
