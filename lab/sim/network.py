"""A store at the other end of a bad network: requests and answers take their time, and some never arrive.

The store itself is the reference store, so what is tested is everything above the seam: app, worker, group commit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.store.memory import MemoryStore
from holdfast.store.protocol import Bell

from .plan import Rates
from .world import Loop, Process, World

PATIENCE = 1.5
"""Seconds after which a client gives up an answer."""
LATE = 3.0
"""Seconds that a request may be on its way, at the most."""
UNCERTAIN = frozenset({"write", "put_record", "leave"})


class Network:
    """The one server, and the way to it."""

    def __init__(self, world: World, rates: Rates, counts: Counter[str]) -> None:
        self.world = world
        self.rates = rates
        self.counts = counts
        self.server = world.process("server")
        self.store = MemoryStore(self.server.clock)
        self.down = False
        self.epoch = 0
        self.deaf = False

    def restart(self, seconds: float) -> None:
        """The server is gone for a while; what is kept stays, and every connection is cut."""
        self.counts["server restarts"] += 1
        self.epoch += 1
        self.down = True
        self.server.loop.call_later(seconds, self._up)

    def _up(self) -> None:
        self.down = False

    def calm(self) -> None:
        """From now on all is well."""
        self.rates = Rates()
        self.down = self.deaf = False

    def latency(self) -> float:
        chance = self.world.chance.random
        if chance() < self.rates.slow:
            self.counts["slow messages"] += 1
            return chance() * 2.0
        return 0.0005 + chance() * 0.01

    def draw(self) -> str:
        """What becomes of a call."""
        if self.down:
            return "refused"
        left = self.world.chance.random()
        for fate, rate in self.rates.fates():
            left -= rate
            if left < 0:
                return fate
        return "answered"


class Line:
    """One process's connection to the store: a Store, by way of the network."""

    name = "simulated"
    features = frozenset[str]()

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    def sibling(self) -> Line:
        return Line(self._network, self._process)

    def abandon(self) -> None:
        """Nothing to let go."""

    async def close(self) -> None:
        """Nothing to let go."""

    def listen(self, topics: Iterable[str]) -> Bell:
        if self._network.deaf:
            self._network.counts["bells that never ring"] += 1
            return self._network.store.listen(())
        return self._network.store.listen(topics)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("transaction", "insert_bound"):
            raise AttributeError(name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, args, kwargs)

        return call

    async def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        network, loop = self._network, asyncio.get_running_loop()
        fate = network.draw()
        if fate != "answered" and name == "write":
            network.counts[f"writes: {fate}"] += 1
        elif fate != "answered":
            network.counts[f"other calls: {fate}"] += 1
        if fate == "refused":
            await asyncio.sleep(network.latency())
            raise StoreUnavailable("connection refused (simulated)")
        answer: asyncio.Future[Any] = loop.create_future()
        request = _Request(network, name, args, kwargs, fate, answer)
        post: Loop = network.server.loop
        there = network.latency() if fate != "late" else PATIENCE + network.world.chance.random() * (LATE - PATIENCE)
        if fate != "lost":
            post.call_later(there, request.arrive)
        else:
            post.call_later(there + network.latency(), request.fail)  # the connection breaks with it
        impatience = loop.call_later(PATIENCE, request.give_up)
        try:
            return await answer
        finally:
            impatience.cancel()


class _Request:
    """One call on its way there and back."""

    def __init__(  # noqa: PLR0917  # a message has what it has
        self,
        network: Network,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        fate: str,
        answer: asyncio.Future[Any],
    ) -> None:
        self.network, self.name, self.fate, self.answer = network, name, fate, answer
        self.args, self.kwargs = args, kwargs
        self.epoch = network.epoch
        self.value: Any = None

    def arrive(self) -> None:
        network = self.network
        if network.down or network.epoch != self.epoch:
            network.counts["requests lost in a restart"] += 1
            self.fail()
            return
        try:
            getattr(network.store, self.name)(*self.args, **self.kwargs).send(None)
        except StopIteration as done:
            self.value = done.value
        else:
            raise AssertionError(f"the reference store waits in {self.name}")
        back = network.latency()
        network.server.loop.call_later(back, self.fail if self.fate == "unanswered" else self.deliver)

    def deliver(self) -> None:
        if self.network.epoch != self.epoch:
            self.network.counts["answers lost in a restart"] += 1
            self.fail()
        else:
            self._resolve(self.value, None)

    def fail(self) -> None:
        self._resolve(None, _unknown(self.name, "the connection was cut"))

    def give_up(self) -> None:
        """On the caller's loop: it has waited long enough."""
        if not self.answer.done():
            self.answer.set_exception(_unknown(self.name, "no answer in time"))

    def _resolve(self, value: Any, error: Exception | None) -> None:
        def resolve() -> None:
            if self.answer.done():
                return
            if error is None:
                self.answer.set_result(value)
            else:
                self.answer.set_exception(error)

        self.answer.get_loop().call_soon_threadsafe(resolve)


def _unknown(name: str, why: str) -> HoldfastError:
    if name in UNCERTAIN:
        return OutcomeUnknown(f"{why} (simulated)")
    return StoreUnavailable(f"{why} (simulated)")
