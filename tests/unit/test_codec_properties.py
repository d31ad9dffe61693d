"""Whatever is generated comes back as it was, or is refused with InvalidJob."""

import dataclasses
import datetime as dt
import enum
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from holdfast.codec import Arguments, Signed, check_json, decode_value, encode_untyped, encode_value, shown
from holdfast.core.errors import InvalidJob


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Item:
    id: UUID
    price: Decimal
    tags: frozenset[str]
    path: Path | None
    pairs: list[Pair]
    by_day: dict[dt.date, Color]


def anything(x): ...


def typed(item: Item, when: dt.datetime, blob: bytes, wait: dt.timedelta, ids: set[UUID]): ...


def spread(a, b=None, /, *rest, **named): ...


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
finite = st.floats(allow_nan=False, allow_infinity=False)


def json_values(strings, numbers):
    scalars = st.none() | st.booleans() | st.integers() | numbers | strings
    return st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(strings, inner), max_leaves=20)


good = json_values(text, finite)
hostile_text = st.text(st.sampled_from('\0\ud800\udfff\\u0d8"[]{}nl😀'), max_size=8)
hostile = json_values(hostile_text, st.floats())
items = st.builds(
    Item,
    id=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    tags=st.frozensets(text),
    path=st.none() | st.builds(Path, text),
    pairs=st.lists(st.builds(Pair, st.integers(), text)),
    by_day=st.dictionaries(st.dates(), st.sampled_from(Color)),
)


@given(good)
def test_json_values_come_back(value):
    arguments = Arguments(anything)
    payload = arguments.encode((value,), {})
    check_json(payload)
    assert arguments.decode(payload) == ((), {"x": value})
    assert shown(payload, "json") == {"x": value}
    assert decode_value(encode_value(value, exact=True)) == value


@given(st.tuples(items, st.datetimes(), st.binary(), st.timedeltas(), st.sets(st.uuids())))
def test_typed_values_come_back(values):
    arguments = Arguments(typed)
    payload = arguments.encode(values, {})
    check_json(payload)
    args, kwargs = arguments.decode(payload)
    assert args == ()
    assert tuple(kwargs.values()) == values
    assert [type(value) for value in kwargs.values()] == [type(value) for value in values]


@given(st.lists(good, min_size=1, max_size=4), st.dictionaries(text.filter(lambda name: name not in "*ab"), good))
def test_calls_are_decoded_as_they_were_written(args, kwargs):
    arguments = Arguments(spread)
    call = (tuple(args), kwargs)
    assert arguments.decode(arguments.encode(*call)) == call
    assert arguments.decode(encode_untyped(*call)) == call


def refused(check, *args) -> bool:
    try:
        check(*args)
    except InvalidJob:
        return True
    return False


@given(hostile, st.booleans())
@example("\\\0", True)
@example({"a": [math.nan, None]}, False)
@example("\ud83d\ude00", True)
def test_values_and_bytes_are_refused_alike(value, ascii_only):
    written = json.dumps({"x": value}, ensure_ascii=ascii_only)
    # In Python two surrogates are broken text; escaped in JSON they are one character.
    assume(not any(high in written.lower() for high in ("\\ud800\\udfff", "\\ud83d")))
    as_bytes = written.encode("utf-8", "surrogatepass")
    assert refused(Arguments(anything).encode, (value,), {}) == refused(check_json, as_bytes)


@given(st.integers(90, 110), st.booleans())
def test_depth_is_counted_alike(depth, as_objects):
    value: Any = 1
    for _ in range(depth):
        value = {"[": value} if as_objects else [value]
    payload = json.dumps({"x": value}).encode()
    assert refused(Arguments(anything).encode, (value,), {}) == refused(check_json, payload) == (depth > 99)


@given(hostile)
def test_a_value_is_either_refused_or_comes_back(value):
    arguments = Arguments(anything)
    try:
        payload = arguments.encode((value,), {})
    except InvalidJob:
        return
    check_json(payload)
    assert arguments.decode(payload) == ((), {"x": value})


@pytest.mark.parametrize("fn", [anything, typed, spread, max])
@given(
    data=st.binary()
    | hostile_text.map(lambda text: text.encode("utf-8", "replace"))
    | good.map(lambda v: json.dumps(v).encode())
)
@example(data=b"[" * 200_000)
@example(data=b'{"x":' * 200_000)
@example(data=b'{"*":[[]]}')
def test_any_bytes_are_decoded_or_refused_and_always_shown(fn, data):
    refused(Arguments(fn).decode, data)
    refused(Arguments(anything, whole=True).decode, data)
    refused(check_json, data)
    refused(lambda given: Signed(["secret"]).loads(given, ("call", "t", "store")), data)
    for codec in ("json", "bytes", "cloudpickle"):
        shown(data, codec)
