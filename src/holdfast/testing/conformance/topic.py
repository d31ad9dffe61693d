"""What all topics of the suite share: the fixtures, and `requires`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
import pytest_asyncio

from ...store.protocol import Store
from .harness import Harness

Test = TypeVar("Test", bound=Callable[..., Any])


def requires(*features: str) -> Callable[[Test], Test]:
    """This test is for stores and harnesses that have all of these features."""

    def mark(test: Test) -> Test:
        vars(test)["required_features"] = features
        return test

    return mark


def required_features(test: object) -> frozenset[str]:
    return frozenset(getattr(test, "required_features", ()))


class Topic:
    """A class of tests, each with a fresh `store`."""

    harness_class: ClassVar[type[Harness]]
    pytestmark = pytest.mark.asyncio

    @pytest_asyncio.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[Harness]:
        harness = self.harness_class(tmp_path)
        yield harness
        await harness.close()

    @pytest_asyncio.fixture
    async def store(self, harness: Harness, request: pytest.FixtureRequest) -> Store:
        store = await harness.make()
        assert not (harness.lacks & store.features), "the store has a feature that its harness says it lacks"
        if missing := required_features(request.function) - store.features - harness.features:
            pytest.skip(f"{store.name} has no {', '.join(sorted(missing))}")
        return store
