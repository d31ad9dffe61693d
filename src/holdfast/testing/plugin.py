"""A pytest plugin, active if Holdfast is installed: the fixture `holdfast_memory`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..app import Holdfast
    from .memory import Bench


@pytest.fixture
def holdfast_memory() -> Generator[Callable[[Holdfast], Bench]]:
    """Give an app an empty memory store and a manual clock for one test.

        from shop import app, signup

        def test_a_reminder_is_sent_after_a_day(holdfast_memory):
            bench = holdfast_memory(app)
            signup.sync.enqueue("ann@example.com")
            bench.work()                        # runs everything that is due; `await` it in async tests
            bench.advance(86400)
            bench.work()
            assert app.sync.jobs(state="queued").jobs == []

    `bench.inline()` is a block in which every job runs where it is enqueued. Tasks, hooks and settings of the app stay
    unchanged; its own store is not used, and is restored after the test.
    """
    # Imported here, so that a test run without an app does not load it.
    from .memory import on_memory

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(on_memory(app))
