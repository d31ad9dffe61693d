"""An event loop whose time is a number: it jumps to whatever is due next, so an hour takes as long as its work."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.core.clock import MICROS

T = TypeVar("T")
EPOCH = 1_750_000_000 * MICROS


class _Jumping(selectors.SelectSelector):
    """Never waits: the time that it was to wait has passed."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None):
        if timeout is None:
            raise RuntimeError("nothing is due and nothing can come: a deadlock")
        self.loop.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _Jumping()
        self.now = 1000.0
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now


class VirtualClock:
    """A machine's clocks on a virtual loop; its wall may be wrong."""

    def __init__(self, loop: VirtualLoop, wall_off: float = 0.0) -> None:
        self._loop = loop
        self.wall_off = wall_off

    def now(self) -> int:
        return EPOCH + round((self._loop.now + self.wall_off) * MICROS)

    def monotonic(self) -> float:
        return self._loop.now

    def boot(self) -> int:
        return round(self._loop.now * MICROS)

    def boot_id(self) -> str:
        return "virtual"


def run_virtually(work: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run to the end; the loop is closed."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
