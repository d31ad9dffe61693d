"""The list that a batch function takes or returns, and what it is annotated to hold for each job."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Union, get_args, get_origin

from ..core.errors import ConfigError

_LISTS = frozenset({list, Sequence, Collection, Iterable})


def item_type(hint: Any, label: str) -> Any:
    """The argument type of one job of a batch, by the annotation of the list."""
    if hint is Any or isinstance(hint, str):  # not annotated, or not known yet
        return Any
    if (get_origin(hint) or hint) not in _LISTS:
        raise ConfigError(f"{label} handles a batch: its parameter must be a list, such as list[str], not {hint}")
    return next(iter(get_args(hint)), Any)


def result_type(hint: Any) -> Any:
    """The result type of one job of a batch, by the return annotation; without exceptions."""
    for part in _choices(hint):
        if get_origin(part) in (list, tuple) and get_args(part):
            kept = tuple(one for one in _choices(get_args(part)[0]) if not _is_failure(one))
            return Union[kept] if kept else Any  # noqa: UP007 - there is no other spelling for a tuple of them
    return Any


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_failure(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseException)
