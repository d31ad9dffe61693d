"""A server at the other end of a bad network: requests and answers take their time, and some never arrive."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from .plan import Rates
from .world import World

PATIENCE = 1.5
"""Seconds after which a client gives up an answer."""
LATE = 3.0
"""Seconds that a request may be on its way; one in a few is on its way for longer, where `very_late` says so."""

Lost = Callable[[str], Exception]
"""The errors of a caller that gets no answer, and why."""


class Network:
    """The one server, and the way to it. What the server does is in the requests."""

    very_late = LATE

    def __init__(self, world: World, rates: Rates, counts: Counter[str]) -> None:
        self.world = world
        self.rates = rates
        self.fates = rates.fates()
        self.counts = counts
        self.server = world.process("server")
        self.down = False
        self.epoch = 0
        self.last_arrival = 0.0
        """When the last of all requests that are late is there."""

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
        self.fates = self.rates.fates()
        self.down = False

    def latency(self) -> float:
        chance = self.world.chance.random
        if chance() < self.rates.slow:
            self.counts["slow messages"] += 1
            return chance() * 2.0
        return 0.0005 + chance() * 0.01

    def draw(self, fates: tuple[tuple[str, float], ...]) -> str:
        """What becomes of a request."""
        if self.down:
            return "refused"
        left = self.world.chance.random()
        for fate, rate in fates:
            left -= rate
            if left < 0:
                return fate
        return "answered"

    async def ask(self, work: Callable[[], Any], fate: str, lost: Lost) -> Any:
        """Have the server do some work, and get its answer: or, as `fate` says, not."""
        loop = asyncio.get_running_loop()
        request = _Request(self, work, fate, lost, loop.create_future())
        post = self.server.loop
        if fate == "lost":
            post.call_later(self.latency() + self.latency(), request.fail)  # the connection breaks with it
        else:
            post.call_later(self._late() if fate == "late" else self.latency(), request.arrive)
        if fate != "late" and not self.rates.slow:  # then its end comes long before anybody loses patience
            return await request.answer
        impatience = loop.call_later(PATIENCE, request.give_up)
        try:
            return await request.answer
        finally:
            impatience.cancel()

    def _late(self) -> float:
        chance = self.world.chance.random
        longest = LATE if chance() < 0.7 else self.very_late
        there = PATIENCE + chance() * (longest - PATIENCE)
        self.last_arrival = max(self.last_arrival, self.server.loop.time() + there)
        return there


class _Request:
    """One call on its way there and back."""

    __slots__ = ("answer", "epoch", "fate", "lost", "network", "value", "work")

    def __init__(
        self, network: Network, work: Callable[[], Any], fate: str, lost: Lost, answer: asyncio.Future[Any]
    ) -> None:
        self.network = network
        self.work = work
        self.fate = fate
        self.lost = lost
        self.answer = answer
        self.epoch = network.epoch
        self.value: Any = None

    def arrive(self) -> None:
        network = self.network
        if network.down or network.epoch != self.epoch:
            network.counts["requests lost in a restart"] += 1
            self.fail()
            return
        self.value = self.work()
        network.server.loop.call_later(network.latency(), self.fail if self.fate == "unanswered" else self.deliver)

    def deliver(self) -> None:
        if self.network.epoch != self.epoch:
            self.network.counts["answers lost in a restart"] += 1
            self.fail()
        elif not self.answer.done():
            self.answer.set_result(self.value)

    def fail(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(self.lost("the connection was cut (simulated)"))

    def give_up(self) -> None:
        """On the caller's loop: it has waited long enough."""
        if not self.answer.done():
            self.answer.set_exception(self.lost("no answer in time (simulated)"))
