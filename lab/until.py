"""Waiting for a condition, with a limit. Nobody here sleeps to be sure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_EVERY = 0.01


def until(condition: Callable[[], T], what: str, limit: float = 90.0, details: Callable[[], str] = str) -> T:
    """The condition's first true answer; after `limit` s an AssertionError with `what` and `details()`."""
    deadline = time.monotonic() + limit
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {limit:g} s: {what}\n{details()}"
        time.sleep(LOOK_EVERY)
    return answer
