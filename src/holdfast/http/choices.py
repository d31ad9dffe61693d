"""Lists the allowed values in enum errors: msgspec's error contains only the wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect


def listing(kind: Any, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a decoder so that errors of enum fields list the allowed values."""

    def decoded(given: Any) -> Any:
        try:
            return decode(given)
        except msgspec.ValidationError as error:
            place = re.fullmatch(r"Invalid enum value .* - at `\$(.*)`", str(error), re.DOTALL)
            values = () if place is None else _values([inspect.type_info(kind)], re.findall(r"\.\w+|\[", place[1]))
            if not values:
                raise
            raise msgspec.ValidationError(f"{error}; allowed values: {', '.join(values)}") from None

    return decoded


def _values(kinds: list[inspect.Type], path: list[str]) -> list[str]:
    """The allowed values at a path into types: `.name` for a field, `[` for an item of a list."""
    found: list[str] = []
    for kind in kinds:
        if isinstance(kind, inspect.Metadata):
            found += _values([kind.type], path)
        elif isinstance(kind, inspect.UnionType):
            found += _values(list(kind.types), path)
        elif isinstance(kind, inspect.LiteralType) and not path:
            found += map(str, kind.values)
        elif isinstance(kind, inspect.EnumType) and not path:
            found += [str(one.value) for one in kind.cls]
        elif isinstance(kind, inspect.ListType) and path[:1] == ["["]:
            found += _values([kind.item_type], path[1:])
        elif isinstance(kind, inspect.StructType) and path:
            found += _values([one.type for one in kind.fields if f".{one.encode_name}" == path[0]], path[1:])
    return found
