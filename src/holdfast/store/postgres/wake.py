"""Waking: listeners, notified by hints that other connections send (and this store's own, by the same way).

One connection of its own listens. While it is down nothing is lost: whoever waits looks again after its time-out,
and every listener rings once when the connection is back, because a hint may have been missed meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from ..notify import LINGER, LocalListener
from . import sql
from .place import Place
from .pool import connect, release

logger = logging.getLogger("holdfast")

QUEUES, JOBS = 1, 2
"""The kinds of hints that one can attend to; the second number of the advisory lock that says so."""
PAUSES = (0.05, 0.2, 1.0, 2.0, 5.0)
"""Seconds before each attempt to listen again; the last one repeats."""
LISTENER_PROBE = 20.0
"""Seconds between two looks whether the listening connection still lives."""


def topic(name: str) -> str:
    """The short form in which hints name a topic; as holdfast.topic() does."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


class Wanted(NamedTuple):
    """The hints that a listener listens for."""

    names: frozenset[str]
    """Its topics, as hints name them."""
    kinds: frozenset[int]

    @classmethod
    def by(cls, listener: LocalListener) -> Wanted:
        """What rings this listener."""
        kinds = frozenset(QUEUES if name.startswith("queue/") else JOBS for name in listener.topics)
        return cls(frozenset(topic(name) for name in listener.topics), kinds)


class Ear(Protocol):
    """Where hints come from: Postgres itself, or Redis."""

    async def listen(self, hear: Callable[[str], None], ready: Callable[[], None]) -> None:
        """Listen until cancelled or cut off; `ready` is called once nothing can be missed any more."""
        ...

    async def attend(self, kinds: set[int]) -> None:
        """Say which kinds of hints are wanted from now on."""
        ...

    def release(self) -> None:
        """Its loop has ended."""
        ...


class Listeners:
    """All listeners of one store object, and the ear that rings them."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._loop = asyncio.get_running_loop()
        self._by_name: dict[str, set[LocalListener]] = {}
        self._all: dict[LocalListener, Wanted] = {}
        self._listening: asyncio.Task[None] | None = None
        self._attending: asyncio.Task[None] | None = None
        self._ready = False
        self._attended: set[int] = set()
        self._tired: asyncio.TimerHandle | None = None

    def make(self, topics: Iterable[str]) -> LocalListener:
        listener = LocalListener(frozenset(topics), self.remove)
        wanted = self._all[listener] = Wanted.by(listener)
        for name in wanted.names:
            self._by_name.setdefault(name, set()).add(listener)
        if self._listening is None:
            self._listening = self._loop.create_task(self._listen())
        self._attend_soon()
        return listener

    def remove(self, listener: LocalListener) -> None:
        wanted = self._all.pop(listener, None)
        if wanted is None:
            return
        for name in wanted.names:
            others = self._by_name[name]
            others.discard(listener)
            if not others:
                del self._by_name[name]
        if self._tired is None and self._attended - self._wanted():
            self._tired = self._loop.call_later(LINGER, self._rest)

    def _rest(self) -> None:
        self._tired = None
        if self._attended - self._wanted():
            self._attended = self._wanted()
            self._attend_soon(again=True)

    def hear(self, said: str) -> None:
        """Ring what a hint names."""
        if said == "*":
            self._notify_all()
            return
        for name in said.split(","):
            for listener in self._by_name.get(name, ()):
                listener.event.set()

    def _notify_all(self) -> None:
        for listener in self._all:
            listener.event.set()

    # -- listening

    def _wanted(self) -> set[int]:
        return {kind for wanted in self._all.values() for kind in wanted.kinds}

    def _attend_soon(self, *, again: bool = False) -> None:
        if self._ready and self._attending is None and (again or self._wanted() - self._attended):
            self._attending = self._loop.create_task(self._attend())

    async def _attend(self) -> None:
        """Say what is wanted. Whoever came before that was said may have missed a hint: ring."""
        try:
            while self._ready:
                wanted = self._wanted() | self._attended
                await self._ear.attend(wanted)
                news, self._attended = wanted - self._attended, wanted
                if news:
                    self._notify_all()
                if not self._wanted() - self._attended:
                    return
        except Exception:  # noqa: BLE001, S110  # the listener finds the same, and begins again
            pass
        finally:
            self._attending = None

    def _on_ready(self) -> None:
        self._ready = True
        self._attended = set()
        self._notify_all()
        self._attend_soon(again=True)

    async def _listen(self) -> None:
        faults = 0
        while True:
            try:
                await self._ear.listen(self.hear, self._on_ready)
                faults = 0
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001  # hints are only hints: polling goes on meanwhile
                logger.debug("listening for hints failed, polling meanwhile: %s", error)
            was_ready, self._ready = self._ready, False
            faults = 0 if was_ready else faults + 1
            await asyncio.sleep(PAUSES[min(faults, len(PAUSES) - 1)])

    async def close(self) -> None:
        if self._tired is not None:
            self._tired.cancel()
        for task in (self._listening, self._attending):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._notify_all()

    def release(self) -> None:
        """The loop has ended, and its tasks with it."""
        self._ear.release()
        self.forget()

    def forget(self) -> None:
        """In a forked child: its tasks belong to a loop that does not run here."""
        self._all.clear()
        self._by_name.clear()


class DeafEar:
    """Hears nothing: LISTEN does not pass a pgbouncer that pools by transaction. Whoever waits looks again in time."""

    async def listen(self, hear: Callable[[str], None], ready: Callable[[], None]) -> None:  # noqa: ARG002  # an Ear's
        await asyncio.Event().wait()

    async def attend(self, kinds: set[int]) -> None:
        pass

    def release(self) -> None:
        pass


class PostgresEar:
    """LISTEN, on a connection of its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connection: Any = None
        self._held: set[int] = set()
        self._one_by_one = asyncio.Lock()

    async def listen(self, hear: Callable[[str], None], ready: Callable[[], None]) -> None:
        connection = await connect(self._place)
        gone = asyncio.Event()
        try:

            def on_gone(_: Any) -> None:
                gone.set()

            def on_hint(_: Any, __: int, ___: str, said: str) -> None:
                hear(said)

            connection.add_termination_listener(on_gone)
            await connection.add_listener(self._place.channel, on_hint)
            self._connection, self._held = connection, set[int]()
            ready()
            while not gone.is_set():
                try:
                    async with asyncio.timeout(LISTENER_PROBE):
                        await gone.wait()
                except TimeoutError:
                    # A connection that was cut without a word looks alive for ever, unless it is asked.
                    async with self._one_by_one:
                        await connection.execute("SELECT 1", timeout=LISTENER_PROBE)
        finally:
            self._connection = None
            connection.terminate()

    def release(self) -> None:
        if self._connection is not None:
            release(self._connection)

    async def attend(self, kinds: set[int]) -> None:
        async with self._one_by_one:
            connection = self._connection
            if connection is None:
                return
            for kind in kinds - self._held:
                await connection.execute(self._statement(sql.ATTEND, kind))
                self._held.add(kind)
            for kind in self._held - kinds:
                await connection.execute(self._statement(sql.UNATTEND, kind))
                self._held.discard(kind)

    def _statement(self, text: str, kind: int) -> str:
        return sql.for_schema(text, self._place.schema).replace("$1", str(kind))
