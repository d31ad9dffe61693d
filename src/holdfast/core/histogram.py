"""Histograms of durations: buckets that double from one millisecond, and quantiles read from them."""

from __future__ import annotations

from collections.abc import Sequence

BUCKETS = 32
"""Bucket 0: less than 1 ms; bucket n: from 2**(n-1) to 2**n ms; the last one: 12 days or more."""
BOUNDS = tuple(1000 << number for number in range(BUCKETS - 1))
"""The microseconds at which bucket 1, 2, … begin."""
LETTERS = "".join(chr(ord("A") + number) for number in range(BUCKETS))

Histogram = tuple[int, ...]
"""How many durations are in each bucket, without empty buckets at the end."""


def bucket(micros: int) -> int:
    """The bucket of a duration of so many microseconds."""
    return min((micros // 1000).bit_length(), BUCKETS - 1)


def of_letters(letters: str) -> Histogram:
    """A histogram from a letter for each duration, as SQL writes them: A for bucket 0, B for bucket 1, …"""
    found: list[int] = []
    left = len(letters)
    for letter in LETTERS:
        if not left:
            break
        found.append(letters.count(letter))
        left -= found[-1]
    return tuple(found)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The duration in seconds below which this share (0 to 1) lies; None for an empty histogram.

    Inside a bucket, durations are taken as evenly distributed: the result is off by less than the width of its bucket.
    """
    wanted = share * sum(counts)
    if wanted <= 0:
        return None
    for number, count in enumerate(counts):
        if count and wanted <= count:
            low = 0.0 if number == 0 else 2.0 ** (number - 1)
            return (low + (2.0**number - low) * wanted / count) / 1000
        wanted -= max(0, count)
    return 2.0 ** (len(counts) - 1) / 1000
