"""What a job remembers, as it is stored: steps beside the user's own checkpoint, and neither taken for the other."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import step_log as steps
from holdfast.core.step_log import Memory, Step

NAMES = st.text(min_size=1, max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["$steps", "value", "a"]), inner),
    max_leaves=10,
)
RAW = JSON.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))
STEPS = st.builds(
    Step,
    st.sampled_from(["step", "sleep", "signal"]),
    NAMES,
    st.none() | st.integers(0, 2**53),
    st.none() | st.integers(0, 2**53),
    st.booleans(),
    RAW,
)


def known(memory):
    """The same in values that can be compared."""
    value = None if memory.value is msgspec.UNSET else bytes(memory.value)
    return value, [(*msgspec.structs.astuple(step)[:-1], bytes(step.result)) for step in memory.steps]


@given(st.lists(STEPS), st.just(msgspec.UNSET) | RAW)
def test_what_is_written_is_read_again(kept, value):
    memory = Memory(tuple(kept), value)
    assert known(steps.read(steps.write(memory))) == known(memory)


@given(JSON)
def test_without_steps_it_is_the_users_value_and_nothing_else(value):
    data = msgspec.json.encode(value)
    stored = steps.write(steps.read(None).with_value(data))
    assert bytes(steps.read(stored).value) == data
    assert steps.read(stored).steps == ()
    assert stored == data or data.startswith(b'{"$steps":')


@pytest.mark.parametrize("data", [b'{"$steps":7}', b'{"$steps":[{"kind":1}]}', b'{"$steps":[', b"\xff"])
def test_what_cannot_be_read_is_the_users_own(data):
    assert known(steps.read(data)) == (data, [])


def test_a_step_takes_the_place_of_the_one_with_its_name():
    memory = Memory(()).with_step(Step("signal", "a", until=7)).with_step(Step("step", "a", at=1))
    answered = steps.read(steps.answered(steps.write(memory), "a", b"true", 9))
    assert known(answered)[1] == [("signal", "a", 9, 7, False, b"true"), ("step", "a", 1, None, False, b"null")]


def test_a_retry_keeps_finished_steps_and_sleeps():
    all_kinds = (Step("step", "a", at=1), Step("sleep", "1", until=5), Step("signal", "b", at=2))
    unfinished = (Step("signal", "c", until=9), Step("signal", "d", at=3, until=2, late=True))
    stored = steps.write(Memory((*all_kinds, *unfinished), msgspec.Raw(b"7")))
    assert steps.read(steps.after_reset(stored, without_steps=False)).steps == all_kinds
    assert steps.after_reset(stored, without_steps=True) == b"7"
    assert steps.after_reset(None, without_steps=False) is None
