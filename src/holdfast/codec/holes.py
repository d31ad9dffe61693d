"""Placeholders in a payload for results of other jobs of a flow, filled when the job runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from ..core.errors import InvalidJob
from .values import plain_json, read, read_any

MARK = "$result"


class Hole:
    """A placeholder for the result of a flow's job, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def holes_in(value: Any) -> Iterator[Hole]:
    """Every hole of a value, in order."""
    if isinstance(value, Hole):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[Any, Any]", value).values():
            yield from holes_in(each)
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            yield from holes_in(each)


def opened(value: Any, what: str) -> Any:
    """A value with its placeholders as JSON; a dict of the user that looks like one is rejected.

    `what`: a description of the value, for the error.
    """
    if isinstance(value, Hole):
        return {MARK: value.number}
    if isinstance(value, dict):
        if MARK in value:
            raise InvalidJob(
                f"{what} cannot contain a dict with the key {MARK!r} together with results of other jobs: rename the"
                " key"
            )
        return {key: opened(each, what) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [opened(each, what) for each in cast("list[Any]", value)]
    return value


def numbers_in(payload: bytes) -> set[int]:
    """The jobs whose results a payload has placeholders for."""
    return set(_numbers(read(read_any, payload, "the payload")))


def _numbers(value: Any) -> Iterator[int]:
    if (number := _mark(value)) is not None:
        yield number
    elif isinstance(value, dict):
        for each in cast("dict[str, Any]", value).values():
            yield from _numbers(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _numbers(each)


def is_open(payload: bytes) -> bool:
    """Whether a payload, or a part of one, has placeholders."""
    return MARK.encode() in payload and bool(numbers_in(payload))


def filled(payload: bytes, results: Mapping[int, bytes | None]) -> bytes:
    """A payload with every placeholder that has a stored result filled by it; None becomes null.

    A result that is not JSON is rejected: inserted as it is, it could add another argument.
    """
    for number, data in results.items():
        if data is not None:
            read(read_any, data, f"the result of job {number} of the flow")
    raw = {number: msgspec.Raw(b"null" if data is None else data) for number, data in results.items()}
    return plain_json(_fill(read(read_any, payload, "the payload"), raw))


def _fill(value: Any, results: Mapping[int, msgspec.Raw]) -> Any:
    if (number := _mark(value)) is not None:
        return results.get(number, value)
    if isinstance(value, dict):
        return {key: _fill(each, results) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_fill(each, results) for each in cast("list[Any]", value)]
    return value


def _mark(value: Any) -> int | None:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if len(found) == 1 and isinstance(found.get(MARK), int):
            return found[MARK]
    return None
