"""What tests of workers share."""

import pytest

from holdfast import Holdfast
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock


@pytest.fixture
async def clocked():
    """An app whose time the test sets, and its clock."""
    clock = ManualClock()
    async with Holdfast(MemoryStore(clock), clock=clock) as app:
        yield app, clock
