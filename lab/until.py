"""Waiting for a condition, with a limit. Nobody here sleeps to be sure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_EVERY = 0.01
LOOK_AT_LEAST_EVERY = 0.05


def until(condition: Callable[[], T], what: str, limit: float = 90.0, details: Callable[[], str] = str) -> T:
    """The condition's first true answer; after `limit` s an AssertionError with `what` and `details()`.

    The longer it takes, the less often it looks: most conditions ask a store, beside what is to happen there.
    """
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        assert waited < limit, f"not within {limit:g} s: {what}\n{details()}"
        time.sleep(min(max(LOOK_EVERY, waited / 20), LOOK_AT_LEAST_EVERY))
    return answer
