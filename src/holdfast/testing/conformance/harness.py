"""How the suite handles one kind of store: makes it, opens it again, and lets its time pass."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from ...store.protocol import Store
from ..clock import ManualClock


class Harness(ABC):
    """A store's place, and everything that was opened there during one test. `folder` is empty and its own."""

    features: ClassVar[frozenset[str]] = frozenset({"hints"})
    """What the suite can use beyond the store's own features; without `hints` listeners are never notified.

    `manual_time`: time stands still between two pass_time(); `wall_jumps`: jump_wall() works;
    `reboots`: reboot() works; `write_count`: write_count() works.
    """
    unit: ClassVar[float] = 1.0
    """The suite's step of time in seconds: small where it has to be waited for, yet longer than a slow round trip."""
    notify_limit: ClassVar[float] = 5.0
    """Seconds within which a listener must ring for a hint to be worth having."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[Store] = []

    @abstractmethod
    def connect(self) -> Store:
        """An unopened store at this harness's place."""

    @abstractmethod
    async def pass_time(self, seconds: float) -> None:
        """Let the store's clock move on by at least this much."""

    @property
    def lease(self) -> float:
        """A lease that a test can outlast."""
        return 4 * self.unit

    async def make(self) -> Store:
        """A fresh, opened, empty store."""
        return await self._open(self.connect())

    async def another(self, store: Store) -> Store:
        """A second, opened connection to the same place."""
        return await self._open(store.sibling())

    async def reopen(self, store: Store) -> Store:
        """The same place as a restarted process would see it."""
        await store.close()
        return await self._open(self.connect())

    async def jump_wall(self, seconds: float) -> None:
        """Set the wall clock, while no time passes."""
        raise NotImplementedError

    async def reboot(self, store: Store) -> Store:
        """Restart the machine; the store as it is found afterwards."""
        raise NotImplementedError

    async def write_count(self) -> int:
        """A number that changes with every commit to the place."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of everything that was opened."""
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
    """For a store whose server keeps the time: steps are small, and are waited for."""

    unit = 0.25

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
