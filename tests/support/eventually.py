"""Waiting for a condition, with a limit: a test never sleeps to be sure."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_EVERY = 0.004
LOOK_AT_LEAST_EVERY = 0.05


async def eventually(condition: Callable[[], T | Awaitable[T]], limit: float = 90.0) -> T:
    """The condition's first true answer; it may be a coroutine function. AssertionError after `limit` seconds.

    The longer it takes, the less often it looks: most conditions ask a store, beside other tests on the same cores.
    """
    began = time.monotonic()
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        waited = time.monotonic() - began
        assert waited < limit, f"not within {limit:g} s: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(min(max(LOOK_EVERY, waited / 20), LOOK_AT_LEAST_EVERY))


async def still(condition: Callable[[], object | Awaitable[object]], span: float = 0.1) -> None:
    """The condition holds, and goes on to hold for a while: for what must not happen, which no event announces."""
    end = time.monotonic() + span
    while time.monotonic() < end:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        assert answer, f"no longer: {inspect.getsource(condition).strip()}"
        await asyncio.sleep(LOOK_EVERY)
