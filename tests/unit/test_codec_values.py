"""What is refused at the door is refused alike, as a value and as bytes of JSON; and anything can be shown."""

import datetime as dt
import math

import msgspec
import pytest

from holdfast.codec import Arguments, check_json, decode_value, encode_value, shown
from holdfast.core.errors import InvalidJob


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


def loop() -> list:
    value: list = []
    value.append(value)
    return value


def anything(x): ...


def number(x: float | None): ...


REFUSED = [
    (math.nan, "NaN or infinity"),
    ([1, {"deep": -math.inf}], r"NaN or infinity at \[1\]\.deep"),
    ("\ud800", "lone surrogate"),
    ({"\udfff": 1}, "lone surrogate"),
    ("a\0b", "u0000"),
    ({"\0": 1}, "u0000"),
    ("\\\0", "u0000"),
    (nested(100), "nested deeper than 100"),
    (nested(5000), "nested deeper than 100"),
    (loop(), "contains itself"),
    (10**5000, "cannot be encoded"),
    (object(), "object has no JSON equivalent"),
    (range(3), "range has no JSON equivalent"),
    (msgspec.Raw(b"no json"), "'x'"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_value_that_no_store_should_see_is_refused_by_name(value, message):
    with pytest.raises(InvalidJob, match=message) as refusal:
        Arguments(anything).encode((value,), {})
    assert "anything()" in str(refusal.value)


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_long_text_beside_it_hides_nothing(value, message):
    def two(text, x): ...

    with pytest.raises(InvalidJob, match=message):
        Arguments(two).encode(("long\n" * 1000, value), {})
    with pytest.raises(InvalidJob, match="u0000"):
        Arguments(two).encode(("long\n" * 1000 + "\0", 1), {})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_is_refused_even_where_none_would_fit(value):
    with pytest.raises(InvalidJob, match=r"parameter 'x' of number\(\) contains NaN or infinity"):
        Arguments(number).encode((value,), {})
    assert Arguments(number).encode((None,), {}) == b'{"x":null}'


@pytest.mark.parametrize(
    "value", ["\\u0000", "\\\\u0000", "C:\\u0000\\", "null", "\x01\x7f", "[" * 500, '{"' * 500, nested(99), [[]] * 500]
)
def test_what_only_looks_dangerous_passes(value):
    arguments = Arguments(anything)
    payload = arguments.encode((value,), {})
    check_json(payload)
    assert arguments.decode(payload) == ((), {"x": value})


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "not usable JSON"),
        (b"{", "not usable JSON"),
        (b"{'a': 1}", "not usable JSON"),
        (b'{"a":1} {}', "not usable JSON"),
        (b'{"a":NaN}', "not usable JSON"),
        (b'{"a":-Infinity}', "not usable JSON"),
        (b'{"a":1e999}', "is invalid"),
        (b'{"a":' + b"9" * 5000 + b"}", "is invalid"),
        (b'{"a":"\\ud800"}', "lone surrogate"),
        (b'{"a":"\\uDC00x"}', "lone surrogate"),
        (b'{"\\ud800\\u0041":1}', "lone surrogate"),
        (b'{"a":"\xed\xa0\x80"}', "not usable JSON"),
        (b'{"a":"\xff"}', "not usable JSON"),
        (b'{"a":"\x00"}', "not usable JSON"),
        (b'{"a":"\\u0000"}', "u0000"),
        (b'{"\\\\\\u0000":1}', "u0000"),
        (b"[" * 1_000_000, "nested deeper than 100"),
        (b'{"a":' * 1_000_000, "nested deeper than 100"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper than 100"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
    ],
)
def test_bytes_that_no_store_should_see_are_refused(payload, message):
    with pytest.raises(InvalidJob, match=message):
        check_json(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b' {"a" : 1 } ',
        b'{"a":1,"a":2}',
        b'{"a":"\\ud83d\\ude00"}',
        b'{"a":"\\\\u0000"}',
        b'{"a":123456789012345678901234567890}',
        b'{"a":' + b"[" * 99 + b"]" * 99 + b"}",
        b'{"a":[' + b",".join([b"[]"] * 1000) + b"]}",
    ],
)
def test_usable_bytes_pass(payload):
    check_json(payload)


def test_other_values_than_objects_pass_where_they_may():
    check_json(b"[1]", any_value=True)
    with pytest.raises(InvalidJob):
        check_json(b'"\\u0000"', any_value=True)


def test_a_value_comes_back_and_may_be_typed():
    assert decode_value(encode_value({"a": [1, None]})) == {"a": [1, None]}
    assert encode_value(None) == b"null"
    day = dt.date(2026, 1, 2)
    assert decode_value(encode_value(day)) == "2026-01-02"
    assert decode_value(encode_value(day), dt.date) == day
    with pytest.raises(InvalidJob, match="the value is invalid"):
        decode_value(b"1", dt.date)
    with pytest.raises(InvalidJob, match="the value is not usable JSON"):
        decode_value(b"{")


def test_an_exact_value_is_refused_if_it_would_come_back_as_something_else():
    assert encode_value({"done": [1, [2]]}, exact=True) == b'{"done":[1,[2]]}'
    with pytest.raises(InvalidJob, match="the checkpoint: JSON would turn the set at done into list"):
        encode_value({"done": {1}}, exact=True, what="the checkpoint")


@pytest.mark.parametrize(
    ("payload", "codec", "seen"),
    [
        (b'{"a":1}', "json", {"a": 1}),
        (b"null", "json", None),
        (b"\x00\xff", "bytes", {"$bytes": "AP8="}),
        (b'{"a":1}', "mine", {"$bytes": "eyJhIjoxfQ=="}),
        (b"12345", "cloudpickle", {"$cloudpickle": "5 bytes"}),
    ],
)
def test_a_person_sees_the_value_or_the_bytes(payload, codec, seen):
    assert shown(payload, codec) == seen


@pytest.mark.parametrize("payload", [b"", b"\xff", b"{", b'"\\ud800"', b"[" * 1_000_000, b"[" * 101 + b"]" * 101])
def test_what_cannot_be_decoded_is_shown_as_such(payload):
    seen = shown(payload, "json")
    assert seen.keys() == {"$undecodable", "$bytes"}
    assert seen["$undecodable"]
