"""Sentinels: follows the current primary, failovers in progress, and the number of replicas.

Subscribes to every reachable sentinel, since only the one that leads a failover announces its beginning, just before it
promotes a replica. Writes wait from then on (`settled`), so that none goes to the replaced primary, which accepts
writes for some seconds more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

from ...core.errors import StoreUnavailable
from .address import Address, Node
from .resp import Connection, Reply
from .verdict import Talk, Verdict, ask, newest, node_text, question

log = logging.getLogger("holdfast")
POLL = 1.0
"""Seconds between two queries of a sentinel; an event triggers one at once."""
PAUSES = (0.2, 1.0, 5.0)
"""Seconds before each attempt to reach a sentinel again; the last one repeats."""
DETECTION_SECONDS = 1.0
"""Seconds that a sentinel may take to see that the replica it promoted is a primary."""
STARTS = ("+selected-slave", "+failover-state-send-slaveof-noone")
EVENTS = (
    *STARTS, "+promoted-slave", "+switch-master", "-failover-abort-no-good-slave", "-failover-abort-slave-timeout",
    "-failover-abort-not-elected", "+sdown", "-sdown", "+slave", "+role-change",
)  # fmt: skip
"""The events of sentinels that we subscribe to."""


class Sentinels:
    """Follows all sentinels of one primary. Calls `moved` when another server has become the primary."""

    def __init__(self, address: Address, moved: Callable[[], None]) -> None:
        self._address = address
        self._moved = moved
        self._primary: Node | None = None
        self._epoch = -1
        self._confirmed = 0.0
        self._tasks: dict[Node, asyncio.Task[None]] = {}
        self._connections: set[Connection] = set()
        self._answering: set[Node] = set()
        """Sentinels that answer."""
        self._silent: set[Node] = set()
        self._ids: dict[str, Node] = {}
        self._counts: dict[Node, int] = {}
        self._failing_over_at: set[Node] = set()
        """Sentinels with a failover in progress."""
        self._settled = asyncio.Event()
        self._settled.set()
        self._warned = False

    @property
    def replicas(self) -> int:
        """How many replicas must have a write."""
        return max(1, *self._counts.values()) if self._counts else 1

    @property
    def named(self) -> Node | None:
        """The primary by the newest answer."""
        return self._primary

    @property
    def failing_over(self) -> bool:
        return bool(self._failing_over_at)

    async def settled(self) -> None:
        """Wait for the end of a failover."""
        try:
            async with asyncio.timeout(self._address.timeout):
                await self._settled.wait()
        except TimeoutError:
            raise StoreUnavailable(
                f"{self._address}: a failover did not finish within {self._address.timeout:g} s; nothing was written."
                " Check the sentinels' logs"
            ) from None

    async def primary(self) -> Node:
        """Query all sentinels, and follow them from now on."""
        known = tuple(dict.fromkeys((*self._address.nodes, *self._tasks)))
        verdicts = await ask(self._address, known)
        verdict = newest(verdicts)
        # Some may not know the last failover yet. If a majority with all that answer agree, they were set up again.
        agreed = 2 * len(verdicts) > len(known) and self._answering <= verdicts.keys()
        if self._primary is None or verdict.epoch >= self._epoch or agreed:
            self._become(verdict)
        for node, said in verdicts.items():
            self._process(node, said, events_since=True)
        for node in known:
            self._follow(node)
        return self._primary or verdict.node

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def release(self) -> None:
        """The loop has ended."""
        for connection in self._connections:
            connection.release()
        self._connections.clear()
        self._tasks = {}

    def forget(self) -> None:
        """In a forked child."""
        for connection in self._connections:
            connection.forget()

    # -- answers

    def _become(self, verdict: Verdict) -> None:
        """Adopt the newest verdict."""
        now = asyncio.get_running_loop().time()
        before, self._primary, self._epoch = self._primary, verdict.node, verdict.epoch
        if before not in (None, verdict.node):
            self._warn_of_failover(before, None if self._failing_over_at else now - self._confirmed + DETECTION_SECONDS)
            self._counts.clear()
            self._failing_over_at.clear()
            self._moved()
        self._confirmed = now

    def _process(self, source: Node, verdict: Verdict, *, events_since: bool = False) -> None:
        """Process the answer of one sentinel; with `events_since` it is older than its last event."""
        if verdict.epoch > self._epoch:
            self._become(verdict)
        if verdict.node == self._primary:
            self._confirmed = asyncio.get_running_loop().time()
            self._counts[source] = verdict.replicas
            if verdict.failing_over:
                self._failing_over_at.add(source)
            elif not events_since:
                self._failing_over_at.discard(source)
        self._update_settled()

    def _warn_of_failover(self, before: Node | None, window: float | None) -> None:
        if self._address.durability == "replicated":
            loss = "durability=replicated: every acknowledged write had reached all replicas that were up"
        elif window is None:
            loss = "no write was sent after it began; earlier writes that the old primary had not replicated are lost"
        else:
            loss = f"writes that the old primary acknowledged in the last {window:.1f} s may be lost"
        log.warning(
            "failover of %s: the primary was %s and is now %s; %s", self._address.master, node_text(before),
            node_text(self._primary), loss,
        )  # fmt: skip

    def _update_settled(self) -> None:
        if self._failing_over_at:
            self._settled.clear()
        else:
            self._settled.set()

    # -- one sentinel

    def _follow(self, node: Node) -> None:
        if node not in self._tasks:
            self._tasks[node] = asyncio.get_running_loop().create_task(self._listen(node))

    async def _listen(self, node: Node) -> None:
        faults = 0
        while True:
            try:
                talk = (Talk(self._address, node, self._connections) for _ in range(2))
                async with next(talk) as asking, next(talk) as events:
                    faults = 0
                    await self._converse(node, asking, events)
            except Exception as error:  # noqa: BLE001  # whatever it answers, the next attempt may work
                self._lost(node, error)
            await asyncio.sleep(PAUSES[min(faults, len(PAUSES) - 1)])
            faults += 1

    async def _converse(self, node: Node, asking: Connection, events: Connection) -> None:
        event = asyncio.Event()
        number = 0

        def message(reply: Reply) -> None:
            nonlocal number
            parts: list[Any] = cast("list[Any]", reply) if isinstance(reply, list) else [None]
            if parts[0] != b"message" or not self._concerns(parts[2]):
                return
            number += 1
            if parts[1].decode() in STARTS:
                self._failing_over_at.add(node)
                self._update_settled()
            event.set()

        events.listen(message)
        events.send("SUBSCRIBE", *EVENTS)
        own = await asking.call("SENTINEL", "MYID")
        if isinstance(own, bytes):
            self._ids.setdefault(own.decode(), node)
        while not events.closed:
            event.clear()
            asked = number
            verdict = await question(asking, self._address, node)
            self._process(node, verdict, events_since=number != asked)
            self._answering.add(node)
            self._silent.clear()
            self._warned = False
            try:
                async with asyncio.timeout(POLL):
                    await event.wait()
            except TimeoutError:
                self._meet(verdict.sentinels)

    def _meet(self, others: Sequence[tuple[str, Node]]) -> None:
        """Follow also the sentinels that the URL does not name."""
        for its_id, node in others:
            if its_id not in self._ids and node not in self._tasks:
                self._ids[its_id] = node
                self._follow(node)

    def _concerns(self, data: Any) -> bool:
        return isinstance(data, bytes) and (self._address.master or "") in data.decode(errors="replace").split()

    def _lost(self, node: Node, error: Exception) -> None:
        self._answering.discard(node)
        self._failing_over_at.discard(node)
        if len(self._counts) > 1:
            self._counts.pop(node, None)
        self._update_settled()
        self._silent.add(node)
        if self._silent >= self._tasks.keys() and not self._warned:
            self._warned = True
            log.warning(
                "no sentinel of %s answers, so a failover would be detected late; check the sentinels: %s",
                self._address.master,
                error,
            )
