"""How long to wait before the next attempt."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Backoff, ConfigError

numbers = st.floats(min_value=0, max_value=1e308, allow_nan=False, allow_infinity=False)
fractions = st.floats(min_value=0, max_value=1, exclude_max=True)
attempts = st.integers(min_value=0, max_value=10**6)


def test_the_default_is_five_seconds_doubled_with_every_attempt():
    assert [Backoff(jitter=0).delay(attempt, 0.0) for attempt in range(1, 6)] == [10, 20, 40, 80, 160]


def test_the_default_spreads_retries_over_two_seconds():
    assert Backoff().delay(1, 0.5) == 11


def test_the_default_stops_growing_at_an_hour():
    assert Backoff().delay(30, 0.0) == 3600


def test_base_one_is_the_plain_power():
    assert [Backoff(base=1, factor=3, jitter=0).delay(attempt, 0.5) for attempt in range(1, 5)] == [3, 9, 27, 81]


def test_factor_one_waits_the_same_every_time():
    assert {Backoff(base=7, factor=1, jitter=0).delay(attempt, 0.0) for attempt in range(1, 100)} == {7}


def test_factor_zero_does_not_wait():
    assert Backoff(base=7, factor=0, jitter=0).delay(1, 0.0) == 0


def test_jitter_is_added_on_top_of_the_cap():
    assert Backoff(base=100, factor=1, jitter=4, cap=10).delay(1, 0.5) == 12


def test_a_hundred_thousand_attempts_do_not_overflow():
    assert Backoff(jitter=0).delay(100_000, 0.0) == 3600
    assert Backoff(factor=sys.float_info.max, jitter=0).delay(2, 0.0) == 3600


def test_nothing_stays_nothing_however_often_it_is_doubled():
    assert Backoff(base=0, factor=2, jitter=0).delay(100_000, 0.0) == 0


@given(st.builds(Backoff, numbers, numbers, st.floats(0, 1e6), st.floats(0, 1e9)), attempts, fractions)
def test_every_delay_is_finite_and_between_nothing_and_cap_plus_jitter(backoff, attempt, fraction):
    delay = backoff.delay(attempt, fraction)
    assert math.isfinite(delay)
    assert backoff.jitter * fraction <= delay <= backoff.cap + backoff.jitter


@given(attempts, fractions, fractions)
def test_delays_of_one_attempt_differ_by_less_than_the_jitter(attempt, one, other):
    backoff = Backoff(jitter=2)
    assert abs(backoff.delay(attempt, one) - backoff.delay(attempt, other)) <= 2


@given(st.floats(1, 10), attempts)
def test_a_later_attempt_never_waits_less(factor, attempt):
    backoff = Backoff(factor=factor, jitter=0)
    assert backoff.delay(attempt, 0.0) <= backoff.delay(attempt + 1, 0.0)


@pytest.mark.parametrize("name", ["base", "factor", "jitter", "cap"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf])
def test_a_number_that_is_no_waiting_time_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"{name} of a Backoff must be a finite number of at least 0"):
        Backoff(**{name: value})


@pytest.mark.parametrize("value", ["5", None, [5]])
def test_what_is_no_number_at_all_is_refused_as_well(value):
    with pytest.raises(ConfigError, match="base of a Backoff must be a finite number"):
        Backoff(base=value)
