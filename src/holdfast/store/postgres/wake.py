"""Listeners, notified by hints that other connections send (and this store's own, in the same way).

A separate connection listens. While it is down nothing is lost: a caller that waits polls after its timeout, and every
listener is notified once when the connection is back, because a hint may have been missed meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from ..notify import LINGER, LocalListener
from . import sql
from .address import Address
from .pool import connect, release

logger = logging.getLogger("holdfast")

QUEUES, JOBS, HOLDERS, NOTES = 1, 2, 3, 4
"""Kinds of hints that a process can request (the first also for records); the second number of the advisory lock by
which it does so."""
KINDS = {"job": JOBS, "holder": HOLDERS, "note": NOTES}
PAUSES = (0.05, 0.2, 1.0, 2.0, 5.0)
"""Seconds before each attempt to listen again; the last one repeats."""
LISTENER_PROBE = 20.0
"""Seconds between two checks that the listening connection is still open."""


def topic(name: str) -> str:
    """The short form in which hints name a topic; the same as that of holdfast.topic()."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def kind_of(name: str) -> int:
    """The kind of hints that name this topic."""
    return KINDS.get(name.partition("/")[0], QUEUES)


class Wanted(NamedTuple):
    """The hints for which a listener waits."""

    names: frozenset[str]
    """Its topics, as hints name them."""
    kinds: frozenset[int]

    @classmethod
    def by(cls, listener: LocalListener) -> Wanted:
        """The hints that notify this listener."""
        kinds = frozenset(map(kind_of, listener.topics))
        return cls(frozenset(topic(name) for name in listener.topics), kinds)


class HintSource(Protocol):
    """Where hints come from: Postgres itself, or Redis."""

    complete: bool
    """Whether a hint follows every commit, also that of a transaction of the user's own."""

    async def listen(self, on_hint: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Listen until cancelled or disconnected; `ready` is called once no hint can be missed any more."""
        ...

    async def request(self, kinds: set[int]) -> None:
        """Request these kinds of hints from now on."""
        ...

    def release(self) -> None:
        """Release sockets after its loop has ended."""
        ...


class Listeners:
    """All listeners of one store object, and the source of hints that notifies them."""

    def __init__(self, source: HintSource, shown: str) -> None:
        self._source = source
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._by_name: dict[str, set[LocalListener]] = {}
        self._all: dict[LocalListener, Wanted] = {}
        self._listening: asyncio.Task[None] | None = None
        self._requesting: asyncio.Task[None] | None = None
        self._ready = False
        self._requested: set[int] = set()
        self._resting: asyncio.TimerHandle | None = None

    def make(self, topics: Iterable[str]) -> LocalListener:
        listener = LocalListener(frozenset(topics), self.remove, self._reliable)
        wanted = self._all[listener] = Wanted.by(listener)
        for name in wanted.names:
            self._by_name.setdefault(name, set()).add(listener)
        if self._listening is None:
            self._listening = self._loop.create_task(self._listen())
        self._request_soon()
        return listener

    def _reliable(self, _: frozenset[str]) -> bool:
        return self._ready and self._source.complete and self._wanted() <= self._requested

    def remove(self, listener: LocalListener) -> None:
        wanted = self._all.pop(listener, None)
        if wanted is None:
            return
        for name in wanted.names:
            others = self._by_name[name]
            others.discard(listener)
            if not others:
                del self._by_name[name]
        if self._resting is None and self._requested - self._wanted():
            self._resting = self._loop.call_later(LINGER, self._rest)

    def _rest(self) -> None:
        self._resting = None
        if self._requested - self._wanted():
            self._requested = self._wanted()
            self._request_soon(again=True)

    def on_hint(self, hint: str) -> None:
        """Notify the listeners of the topics that a hint names; `*` means all queues and jobs."""
        for name in hint.split(","):
            if name == "*":
                self._notify_all(QUEUES, JOBS)
            for listener in self._by_name.get(name, ()):
                listener.event.set()

    def _notify_all(self, *kinds: int) -> None:
        """Notify all listeners, or those for hints of these kinds."""
        for listener, wanted in self._all.items():
            if not kinds or not wanted.kinds.isdisjoint(kinds):
                listener.event.set()

    # -- listening

    def _wanted(self) -> set[int]:
        return {kind for wanted in self._all.values() for kind in wanted.kinds}

    def _request_soon(self, *, again: bool = False) -> None:
        if self._ready and self._requesting is None and (again or self._wanted() - self._requested):
            self._requesting = self._loop.create_task(self._request())

    async def _request(self) -> None:
        """Request the wanted hints. Listeners made before that may have missed one, so all are notified."""
        try:
            while self._ready:
                wanted = self._wanted() | self._requested
                await self._source.request(wanted)
                news, self._requested = wanted - self._requested, wanted
                if news:
                    self._notify_all()
                if not self._wanted() - self._requested:
                    return
        except Exception:  # noqa: BLE001, S110  # `_listen` gets the same error, and connects again
            pass
        finally:
            self._requesting = None

    def _on_ready(self) -> None:
        self._ready = True
        self._requested = set()
        self._notify_all()
        self._request_soon(again=True)

    async def _listen(self) -> None:
        faults = 0
        while True:
            try:
                await self._source.listen(self.on_hint, self._on_ready)
                faults = 0
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001  # hints are optional: polling continues
                text = "%s: listening for notifications failed; workers poll until it works again: %s"
                logger.debug(text, self._shown, error)
            was_ready, self._ready = self._ready, False
            faults = 0 if was_ready else faults + 1
            await asyncio.sleep(PAUSES[min(faults, len(PAUSES) - 1)])

    async def close(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        for task in (self._listening, self._requesting):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._notify_all()

    def release(self) -> None:
        """Release the connection after the loop and its tasks have ended."""
        self._source.release()
        self.forget()

    def forget(self) -> None:
        """In a forked child: its tasks belong to a loop that does not run here."""
        self._all.clear()
        self._by_name.clear()


class NoHints:
    """Receives no hints: LISTEN does not work through a pgbouncer with transaction pooling. Callers poll."""

    complete = False

    async def listen(self, on_hint: Callable[[str], None], ready: Callable[[], None]) -> None:  # noqa: ARG002  # of HintSource
        await asyncio.Event().wait()

    async def request(self, kinds: set[int]) -> None:
        pass

    def release(self) -> None:
        pass


class PostgresHints:
    """LISTEN, on a separate connection."""

    complete = True

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Any = None
        self._requested: set[int] = set()
        self._one_by_one = asyncio.Lock()

    async def listen(self, on_hint: Callable[[str], None], ready: Callable[[], None]) -> None:
        connection = await connect(self._address)
        gone = asyncio.Event()
        try:

            def on_gone(_: Any) -> None:
                gone.set()

            def received(_: Any, __: int, ___: str, hint: str) -> None:
                on_hint(hint)

            connection.add_termination_listener(on_gone)
            await connection.add_listener(self._address.channel, received)
            self._connection, self._requested = connection, set[int]()
            ready()
            while not gone.is_set():
                try:
                    async with asyncio.timeout(LISTENER_PROBE):
                        await gone.wait()
                except TimeoutError:
                    # A connection that was cut silently looks open for ever, unless a statement is sent.
                    async with self._one_by_one:
                        await connection.execute("SELECT 1", timeout=LISTENER_PROBE)
        finally:
            self._connection = None
            connection.terminate()

    def release(self) -> None:
        if self._connection is not None:
            release(self._connection)

    async def request(self, kinds: set[int]) -> None:
        async with self._one_by_one:
            connection = self._connection
            if connection is None:
                return
            for kind in kinds - self._requested:
                await connection.execute(self._statement(sql.REQUEST_HINTS, kind))
                self._requested.add(kind)
            for kind in self._requested - kinds:
                await connection.execute(self._statement(sql.STOP_HINTS, kind))
                self._requested.discard(kind)

    def _statement(self, text: str, kind: int) -> str:
        return sql.for_schema(text, self._address.schema).replace("$1", str(kind))
