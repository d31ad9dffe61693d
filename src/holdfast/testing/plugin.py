"""A pytest plugin, active if Holdfast is installed: fixtures for the tests of programs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..app import Holdfast
    from .memory import Bench

# Holdfast is imported in the fixtures, so that a test run without an app does not load it.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_app", "The Holdfast app of the tests, as module:app; for the fixture holdfast_app.")


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
    from .memory import on_memory

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(on_memory(app))


@pytest.fixture
def holdfast_app(pytestconfig: pytest.Config) -> Holdfast:
    """The app of the tests: the ini option `holdfast_app = shop.queue:app`, or override this fixture."""
    from ..loading import load_app

    name = pytestconfig.getini("holdfast_app")
    if not name:
        raise pytest.UsageError(
            "the tests name no Holdfast app: set holdfast_app = module:app in the pytest configuration, or define a"
            " fixture holdfast_app that returns the app"
        )
    return load_app(name)


@pytest.fixture
def holdfast_bench(holdfast_app: Holdfast, holdfast_memory: Callable[[Holdfast], Bench]) -> Bench:
    """The app of the tests (`holdfast_app`) on an empty memory store, with a manual clock."""
    return holdfast_memory(holdfast_app)


@pytest.fixture
def holdfast_inline(holdfast_bench: Bench) -> Generator[Bench]:
    """The same, and every job runs where it is enqueued."""
    with holdfast_bench.inline():
        yield holdfast_bench
