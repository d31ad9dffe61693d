"""What a job waits for: one value, one text, and one parser that takes whatever is stored."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.waiting import LIMIT_PREFIX, Kind, Waiting, read, write
from holdfast.store.postgres import schema

KINDS = [kind for kind in get_args(Kind) if kind != "unknown"]


@given(st.sampled_from(KINDS), st.text(min_size=1))
def test_every_value_is_read_back_from_its_text(kind, name):
    assert read(write(Waiting(kind, name))) == Waiting(kind, name)


@given(st.text() | st.tuples(st.sampled_from([*KINDS, "unknown", "job"]), st.text()).map(":".join))
def test_every_text_is_read_and_written_back_as_it_is(text):
    assert write(read(text)) == text


@pytest.mark.parametrize("text", ["", ":", "x", "limit", "limit:", ":x", "unknown:x", "job:x", "Limit:x", "limit :x"])
def test_a_text_that_cannot_be_parsed_is_of_an_unknown_kind(text):
    assert read(text) == Waiting("unknown", text)


def test_nothing_is_written_and_read_as_nothing():
    assert (write(None), read(None)) == (None, None)


def test_sql_begins_the_text_of_a_full_limit_as_python_does():
    assert write(Waiting("limit", "x")) == f"{LIMIT_PREFIX}x"
    [step] = schema.steps().values()
    assert "{limit}" not in step
    assert step.count(f"'{LIMIT_PREFIX}' ||") == 4


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_is_shown_in_words(kind):
    assert str(Waiting(kind, "its name")).endswith(" its name")


def test_it_is_an_object_in_json_and_no_other_kind_is_taken():
    assert msgspec.json.encode(Waiting("signal", "go")) == b'{"kind":"signal","name":"go"}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind":"odd","name":"go"}', type=Waiting)
