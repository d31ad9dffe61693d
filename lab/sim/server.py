"""The reference store behind a bad network. What is tested is everything above the store: app, worker, group commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store.protocol import Listener, Store
from holdfast.store.reference.memory import MemoryStore

from .network import Network
from .plan import Plan
from .world import Process, World

UNCERTAIN = frozenset({"write", "put_record", "leave"})


class Server(Network):
    """A database's server: it has the one clock, and the one truth."""

    one_clock = True

    def __init__(self, world: World, plan: Plan, counts: Counter[str]) -> None:
        super().__init__(world, plan.rates, counts)
        self.truth = MemoryStore(self.server.clock)
        self.deaf = plan.deaf

    def calm(self) -> None:
        super().calm()
        self.deaf = False

    def store(self, process: Process) -> Any:
        """A process's store."""
        return Line(self, process)

    def observer(self, process: Process) -> Store:
        """What there is, seen without the network."""
        return self.truth

    def left_running(self, process: Process) -> int:
        """Nothing of the store runs in its clients."""
        return 0


class Line:
    """One process's connection to the store: a Store, by way of the network."""

    name = "simulated"
    features = frozenset[str]()

    def __init__(self, network: Server, process: Process) -> None:
        self._network = network
        self._process = process

    def sibling(self) -> Line:
        return Line(self._network, self._process)

    def release(self) -> None:
        """Nothing to release."""

    def abandon(self) -> None:
        """Nothing to release."""

    async def close(self) -> None:
        """Nothing to release."""

    def listen(self, topics: Iterable[str]) -> Listener:
        if self._network.deaf:
            self._network.counts["listeners that never ring"] += 1
            return self._network.truth.listen(())
        return self._network.truth.listen(topics)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("transaction", "insert_bound"):
            raise AttributeError(name)

        network, work = self._network, getattr(self._network.truth, name)
        lost = OutcomeUnknown if name in UNCERTAIN else StoreUnavailable

        async def call(*args: Any, **kwargs: Any) -> Any:
            fate = network.draw(network.fates)
            if fate != "answered":
                network.counts[f"writes: {fate}" if name == "write" else f"other calls: {fate}"] += 1
            if fate == "refused":
                await asyncio.sleep(network.latency())
                raise StoreUnavailable("connection refused (simulated)")
            return await network.ask(lambda: _at_once(work(*args, **kwargs)), fate, lost)

        setattr(self, name, call)
        return call


def _at_once(call: Any) -> Any:
    """The answer of a coroutine that never waits."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the reference store waits")
