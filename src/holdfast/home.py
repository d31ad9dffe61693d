"""Where an app lives: one event loop, which is the first that uses it (or a thread of its own, for `app.sync`).

Calls from other loops and threads are carried there, so that all callers of a process share commits.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .clock import Clock, Entropy, SystemClock, fresh_entropy
from .errors import ConfigError, HoldfastError
from .observe.events import Events
from .outages import Outages
from .session import Session
from .settings import Settings, combine, from_environment
from .store.protocol import Store

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Home")

_homes: weakref.WeakSet[Home] = weakref.WeakSet()


def carried(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Makes a method open the app at its first use, and run on the app's own loop wherever it is called."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        session = self._session  # pyright: ignore[reportPrivateUsage]  # this wraps methods of the class itself
        if session is not None and session.loop is asyncio.get_running_loop():
            return await method(self, *args, **kwargs)
        home = await self._home()  # pyright: ignore[reportPrivateUsage]
        if home is asyncio.get_running_loop():
            return await method(self, *args, **kwargs)
        return await carry(method(self, *args, **kwargs), home)

    return call


async def carry(coroutine: Coroutine[Any, Any, R], home: asyncio.AbstractEventLoop) -> R:
    """Run a coroutine on another thread's loop. That loop may end before it answers: then nobody waits for ever."""
    there = asyncio.run_coroutine_threadsafe(coroutine, home)
    here = asyncio.wrap_future(there)
    try:
        while not here.done() and (home.is_running() or there.done()):
            await asyncio.wait([here], timeout=1.0)
    except asyncio.CancelledError:
        here.cancel()
        raise
    if here.done() and not here.cancelled():
        return here.result()
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
    raise HoldfastError("the event loop that the app lived on has ended; whether the call was made is not known")


class Home:
    """Opens a store at the first use, keeps it on one loop, and closes it in order."""

    def __init__(
        self, store: Store, given: Mapping[str, Any], clock: Clock | None = None, entropy: Entropy | None = None
    ) -> None:
        self.clock = clock or SystemClock()
        self.entropy = entropy or fresh_entropy()
        self.events = Events(self.clock)
        self.outages = Outages(self.clock)
        """What fails now, for the log."""
        self.before_close: set[Callable[[], Awaitable[object]]] = set()
        """What must end before the app can: the workers that run on it."""
        self._store = store
        self._given = given
        self._seeded = entropy is not None
        self._session: Session | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._choosing = threading.Lock()
        _homes.add(self)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @carried
    async def open(self) -> None:
        """Connect now rather than at the first use."""

    @carried
    async def at_home(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Do something on the app's own loop, wherever this is called."""
        return await work()

    async def close(self) -> None:
        """Write what was handed in, then disconnect. The app may be used again: it opens anew."""
        session = self._session
        if session is None:
            return
        if session.loop is asyncio.get_running_loop():
            for end in list(self.before_close):
                await end()
            if self._session is session:
                self._session = None
                # Whoever uses the app meanwhile waits until the store is closed, and opens it anew.
                self._closing = session.loop.create_task(session.close())
            if self._closing is not None:
                await asyncio.shield(self._closing)
        elif session.loop.is_running():
            await carry(self.close(), session.loop)
        else:
            self._abandon(session)

    def _abandon(self, session: Session) -> None:
        """Its loop ended without closing the app: nothing can be awaited there any more."""
        session.feed.follow({})
        session.store.abandon()
        self.before_close.clear()
        self._session = None

    async def _home(self) -> asyncio.AbstractEventLoop:
        """The app's loop: this one, from now on, where it has none that lives."""
        loop = asyncio.get_running_loop()
        with self._choosing:
            session, opening = self._session, self._opening
            if session is not None:
                if session.loop.is_running():
                    return session.loop
                self._abandon(session)
            if opening is None or opening.done() or not opening.get_loop().is_running():
                opening = self._opening = loop.create_task(self._open())
        home = opening.get_loop()
        if home is loop:
            await asyncio.shield(opening)
            return loop
        await carry(self._home(), home)  # another thread was first
        return home

    async def _open(self) -> None:
        closing = self._closing
        if closing is not None and not closing.done() and closing.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([closing])
        self._closing = None
        session = Session(self._store, self._given, self.clock, self.entropy, self.events, outages=self.outages)
        try:
            await session.open()
        except BaseException:
            self._store.abandon()  # half open, it would stay bound to a loop that may end
            raise
        self._session = session

    def live_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that the app lives on, if it runs."""
        session = self._session
        return session.loop if session is not None and session.loop.is_running() else None

    def current_settings(self) -> Settings:
        """What the app goes by. While it is closed, what the store says is not known."""
        if self.live_loop() is None:
            return combine(self._given, from_environment(os.environ), {})
        return self.session.settings

    @property
    def store(self) -> Store:
        """The store itself, open or not."""
        return self._store

    @property
    def session(self) -> Session:
        """The open session, for workers on the app's own loop."""
        if self._session is None:
            raise ConfigError("the app is not open")
        return self._session

    def after_fork(self) -> None:
        """In a forked child: nothing of the parent's connections may be used or closed here."""
        if self._session is not None:
            self._session.feed.follow({})
        self._store.abandon()  # open, or caught on its way there
        self._session = self._opening = self._closing = None
        self.before_close.clear()
        self._choosing = threading.Lock()
        if not self._seeded:
            self.entropy = fresh_entropy()


def _forget_parents() -> None:
    for home in list(_homes):
        home.after_fork()


os.register_at_fork(after_in_child=_forget_parents)
