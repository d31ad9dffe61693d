"""Histograms of durations: buckets, letters of SQL, quantiles."""

import pytest

from holdfast.core.histogram import BOUNDS, BUCKETS, LETTERS, bucket, of_letters, quantile


def test_every_bound_begins_a_bucket():
    assert len(BOUNDS) == BUCKETS - 1 == len(LETTERS) - 1
    for number, bound in enumerate(BOUNDS):
        assert (bucket(bound - 1), bucket(bound)) == (number, number + 1)
    assert (bucket(0), bucket(2**63)) == (0, BUCKETS - 1)


@pytest.mark.parametrize(("letters", "counts"), [("", ()), ("A", (1,)), ("CACAC", (2, 0, 3)), ("`", (0,) * 31 + (1,))])
def test_letters_are_counted(letters, counts):
    assert of_letters(letters) == counts


def test_a_quantile_is_within_its_bucket():
    assert quantile((), 0.5) is None
    assert quantile((0, 0), 0.5) is None
    assert quantile((4,), 0.5) == 0.0005
    assert quantile((0, 0, 10), 0.5) == 0.003  # from 2 to 4 ms
    assert quantile((90, 9, 1), 0.5) < 0.001
    assert 0.001 <= quantile((90, 9, 1), 0.95) < 0.002
    assert 0.002 <= quantile((90, 9, 1), 0.995) <= 0.004
    assert quantile((1, 1), 1.0) == 0.002


def test_damaged_counts_raise_nothing():
    assert quantile((-5, 3), 0.99) is None
    assert quantile((3, -1), 0.99) <= 0.001
