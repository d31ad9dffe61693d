"""How the suite uses one kind of store: creates it, reopens it, and advances its clock."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from ...store.protocol import Store
from ..clock import ManualClock

HARNESS_FEATURES = frozenset({"hints", "manual_time", "wall_jumps", "reboots", "write_count", "reliable_hints"})
"""What `Harness.features` may contain; all other features are the store's own."""


class Harness(ABC):
    """The location of a store, and all stores opened there during one test. `folder` is empty at first."""

    features: ClassVar[frozenset[str]] = frozenset({"hints"})
    """What the suite can use beyond the store's own features; without `hints` listeners are never notified.

    `manual_time`: time passes only by pass_time(); `wall_jumps`: jump_wall() works;
    `reboots`: reboot() works; `write_count`: write_count() works; `reliable_hints`: listeners become reliable.
    """
    lacks: ClassVar[frozenset[str]] = frozenset()
    """Features that the store does not have (`Store.features`): the suite makes no tests of them."""
    unit: ClassVar[float] = 1.0
    """The time step of the suite in seconds: small if it has to be waited for, but longer than a slow round trip."""
    notify_limit: ClassVar[float] = 5.0
    """Seconds within which a listener must be notified."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[Store] = []

    @abstractmethod
    def connect(self) -> Store:
        """An unopened store at this location."""

    @abstractmethod
    async def pass_time(self, seconds: float) -> None:
        """Advance the store's clock by at least this much."""

    @property
    def lease(self) -> float:
        """A lease that a test can outlast."""
        return 4 * self.unit

    async def make(self) -> Store:
        """A fresh, opened, empty store."""
        return await self._open(self.connect())

    async def another(self, store: Store) -> Store:
        """A second, opened connection to the same store."""
        return await self._open(store.sibling())

    async def reopen(self, store: Store) -> Store:
        """Close the store and open it again, like a restarted process."""
        await store.close()
        return await self._open(self.connect())

    async def jump_wall(self, seconds: float) -> None:
        """Change the wall clock without advancing the others."""
        raise NotImplementedError

    async def reboot(self, store: Store) -> Store:
        """Simulate a restart of the machine; the reopened store."""
        raise NotImplementedError

    async def write_count(self) -> int:
        """A number that changes with every commit to the store."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close all opened stores."""
        for store in reversed(self._opened):
            await store.close()

    async def _open(self, store: Store) -> Store:
        self._opened.append(store)
        await store.open()
        return store


class ManualTimeHarness(Harness):
    """For a store that takes a clock: `connect` gives it `self.clock`."""

    features = Harness.features | {"manual_time", "wall_jumps"}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = ManualClock()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def jump_wall(self, seconds: float) -> None:
        self.clock.jump_wall(seconds)


class RealTimeHarness(Harness):
    """For a store that uses its server's clock: steps are small, and the suite waits for them."""

    unit = 0.25

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
