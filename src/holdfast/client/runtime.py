"""The event loop of an app.

It is the loop that opened the app (`async with app`, `await app.open()`, a worker, a server), or the main thread's, as
long as none of its loops has ended while the app used it; else a background loop of the app. Calls from other loops and
threads are forwarded to it, so that all callers of a process share connections and commits, independent of their own
loops.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ..core.clock import Clock, Entropy, SystemClock, fresh_entropy
from ..core.errors import ConfigError, HoldfastError
from ..core.settings import Settings, combine, from_environment
from ..observe import meters
from ..observe.events import Events
from ..observe.outages import Outages
from ..store.callers import refuse_caller, refuse_program, running_loop
from ..store.protocol import Store
from .loop_calls import CALLS_LINGER, BackgroundLoop, LoopEnded, NotStarted, call_on_loop, held_lock
from .loop_end import Ending
from .session import CallsInProgress, MakeFeed, Moved, Session

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
Work = Callable[..., Coroutine[Any, Any, R]]
"""An async function whose first argument is the open session."""

EXIT_LIMIT = 3.0
"""Seconds for which the exit of a program waits for apps that were left open."""
ENDING_LOOKS, ENDING_PAUSE = 20, 0.01
"""Number of checks, and seconds between them, whether a loop that is not running is closed or continues."""
_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_inherited: list[object] = []
"""Loops of the parent process, kept from garbage collection in a forked child."""


def unless_delivered(undo: Callable[[Any, Session, Any], object]) -> Callable[[F], F]:
    """For a method on the app's loop: the function that undoes a result whose caller was cancelled meanwhile."""

    def mark(method: F) -> F:
        vars(method)["undelivered"] = undo
        return method

    return mark


def on_app_loop(
    method: Callable[Concatenate[S, Session, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Makes a service's method open the app on first use, and run on the app's loop wherever it is called.

    The method gets the open session as its first argument; its callers do not give it. The service has the app's
    `Runtime` as `_runtime`.
    """

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        runtime = cast("Runtime", self._runtime)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        session = runtime._session  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  # its own module
        if session is not None and session.loop is running_loop():
            try:
                if session.calls_in_progress is None:
                    return await method(self, session, *args, **kwargs)
                return await session.calls_in_progress.run(lambda: method(self, session, *args, **kwargs))
            except Moved:
                pass
        return await runtime.carry(functools.partial(method, self), args, kwargs)

    seen = inspect.signature(method)
    parameters = [one for name, one in seen.parameters.items() if name != "session"]
    vars(call)["__signature__"] = seen.replace(parameters=parameters)
    return call


class Runtime:
    """Makes and opens a store on first use (`place`), keeps it on one loop, and closes it."""

    new_answer = staticmethod(held_lock)
    """What blocking callers wait for: tests replace it."""

    def __init__(
        self,
        place: Callable[[], Store],
        given: Mapping[str, Any],
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        *,
        feed: MakeFeed,
    ) -> None:
        refuse_program()
        self.clock = clock or SystemClock()
        self.entropy = entropy or fresh_entropy()
        self.events = Events(self.clock)
        self.outages = Outages(self.clock)
        """Current failures, for the log."""
        self.before_close: set[Callable[[], Awaitable[object]]] = set()
        """The workers that run on the app, which must end before it."""
        self._place = place
        self._made_store: Store | None = None
        self._given = given
        self._make_feed = feed
        self._seeded = entropy is not None
        self._forget()
        _runtimes.add(self)

    @property
    def _store(self) -> Store:
        if self._made_store is None:
            with self._choosing:
                self._made_store = self._made_store or self._place()
        return self._made_store

    @_store.setter
    def _store(self, store: Store) -> None:
        self._made_store = store

    @property
    def unused(self) -> bool:
        """Whether nothing has opened the app, or begun to."""
        return self._session is None and self._loop is None and self._opening is None and self._background is None

    @property
    def in_test(self) -> bool:
        """Whether a test has replaced the store (`holdfast.testing.on_memory`)."""
        return "new_answer" in vars(self)

    def place_again(self) -> None:
        """Forget the store of an unused app: the next use makes it."""
        self._made_store = None

    def _forget(self) -> None:
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the app, after it was chosen."""
        self._lasting: asyncio.AbstractEventLoop | None = None
        """A loop that is known to last, because it opened the app."""
        self._leaving: Session | None = None
        """Still open, for the calls in progress on a loop that the app has left."""
        self._loops_are_short = False
        """A loop that had not opened the app has ended during its use: others may too, so the app uses its own."""
        self._background: BackgroundLoop | None = None
        self._opening: Ending | None = None
        self._before: Ending | None = None
        """Must end before the store can be opened: the store is still open on another loop."""
        self._dropped: weakref.finalize[Any, Any] | None = None
        self._choosing = threading.RLock()  # a finalizer may call while its own thread is choosing
        self._starting = False

    async def open(self) -> None:
        """Connect now, and use this loop until it ends or the app is closed.

        An app on a background loop moves here. An app that another loop has opened stays there.
        """
        session = self._session
        if session is None or not (self._lasting is session.loop is running_loop()):
            self.stay_here()
            await self.opened()

    def stay_here(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Use the running loop, which is known to last, unless another such loop has the app."""
        loop = loop or running_loop()
        with self._choosing:
            self._lasting, home = loop, self._loop
            if home is loop:
                return
            if self.in_background():
                self.disconnect(moved=True)
            elif home is not None:
                if home.is_running():
                    return
                self._release()
            self._loop = loop

    async def leave_block(self) -> None:
        """At the end of an `async with` block: close the app, unless another block on another loop uses it."""
        home = self._loop
        if home is None or home is running_loop() or self.in_background() or not home.is_running():
            await self.close()

    async def opened(self) -> Session:
        """The open session, for attributes that any thread may read: its settings."""
        session = self._session
        if session is not None and session.loop is running_loop():
            return session
        while True:
            try:
                return await self.carry(_itself, (), {})
            except LoopEnded:  # with that loop; there is another
                pass

    async def run(self, work: Callable[[Session], Coroutine[Any, Any, R]]) -> R:
        """Run a function with the open session on the app's loop, from any loop."""
        return await self.carry(work, (), {})

    async def close(self) -> None:
        """Write all accepted operations, then disconnect. The app can be used again: it reopens."""
        if self.before_close and self.live_loop() is not None:
            await self.run(lambda _: self.end_workers())
        left = self.disconnect()
        if left is not None:
            if not await left.ended():
                self._discard_store()  # the loop ended half-way
            await left.thread_ended()

    async def end_workers(self) -> None:
        """On the app's loop: stop the workers, which must end before the app."""
        for end in list(self.before_close):
            await end()

    def close_blocking(self) -> None:
        """Disconnect, from any thread except the app's own."""
        left = self.disconnect()
        if left is not None and not left.wait():
            self._discard_store()

    # -- where

    async def carry(self, work: Work[R], args: Any, kwargs: Any) -> R:
        """Call a function with the open session on the app's current loop."""
        loop, leaving = running_loop(), self._leaving
        if leaving is not None and leaving.loop is loop and leaving.calls_in_progress is not None:
            try:  # part of a call in progress there, or one that begins there: the app leaves afterwards
                return await leaving.calls_in_progress.run(lambda: work(leaving, *args, **kwargs))
            except Moved:
                return await leaving.calls_in_progress.pause(self._carry_over(work, args, kwargs))
        return await self._carry_over(work, args, kwargs)

    async def _carry_over(self, work: Work[R], args: Any, kwargs: Any) -> R:
        loop = running_loop()
        refuse_caller()
        for _ in range(ENDING_LOOKS):
            if not self.loop_is_ending():
                break
            await asyncio.sleep(ENDING_PAUSE)
        while True:
            home = self.choose_loop(loop)
            try:
                if home is loop:
                    return await self._run(work, args, kwargs)
                return await call_on_loop(self._run(work, args, kwargs), home, self.undo_of(work))
            except (NotStarted, Moved):
                pass

    def undo_of(self, work: Callable[..., Any]) -> Callable[[Any], object] | None:
        """The function that undoes an undelivered result of this method; None if nothing has to be undone."""
        method = work.func if isinstance(work, functools.partial) else work
        undo = getattr(method, "undelivered", None)
        if undo is None:
            return None
        service = work.args[0] if isinstance(work, functools.partial) else getattr(work, "__self__", None)

        def undone(answer: Any) -> None:
            with suppress(HoldfastError):  # it was closed meanwhile, or has left this loop: leases expire
                undo(service, self.session, answer)

        return undone

    async def _run(self, work: Work[R], args: Any, kwargs: Any) -> R:
        """On the chosen loop: open the app if it is closed. Raises Moved if it has left meanwhile."""
        loop = asyncio.get_running_loop()
        while (session := self._session) is None or session.loop is not loop:
            with self._choosing:
                if self._loop is not loop:
                    raise Moved
                opening = self._opening
                if opening is None or opening.done():
                    opening = self._opening = Ending(loop)
                    opening.follow(loop.create_task(self._open(opening, self._before)))
            await opening.ended()
        if session.calls_in_progress is None:
            return await work(session, *args, **kwargs)
        return await session.calls_in_progress.run(lambda: work(session, *args, **kwargs))

    def choose_loop(self, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.AbstractEventLoop:
        """The loop of the app. If none is running: `loop`, if it seems to last, else its background loop."""
        with self._choosing:
            home = self._loop
            if home is not None and home.is_running():
                return home
            if home is not None:
                self._release()
            if loop is not None and (loop is self._lasting or self._seems_to_last()):
                self._loop = loop
                return loop
            if self._starting:
                raise HoldfastError(
                    "nothing was written: a finalizer (__del__) called the app while the app was starting its thread;"
                    " do not use the app in finalizers"
                )
            self._starting = True
            try:
                self._background = BackgroundLoop()
            finally:
                self._starting = False
            self._loop = self._background.loop
            self._watch_drop(self._loop)
            return self._loop

    def loop_is_ending(self) -> bool:
        """Whether the app's loop is not running, but not closed: `asyncio.run` may be ending it."""
        home = self._loop
        return home is not None and not home.is_running() and not home.is_closed()

    def _seems_to_last(self) -> bool:
        return not self._loops_are_short and threading.current_thread() is threading.main_thread()

    def in_background(self) -> bool:
        return self._background is not None and self._loop is self._background.loop

    async def _open(self, opening: Ending, before: Ending | None) -> None:
        await self._after(before)
        session = Session(
            self._store, self._given, self.clock, self.entropy, self.events, feed=self._make_feed, outages=self.outages
        )
        try:
            await session.open()
        except BaseException as error:
            if isinstance(error, Exception):
                with suppress(Exception):
                    await session.store.close()
            session.store.release()  # half open, it would stay bound to a loop that may end
            raise
        meters.listen(self.events)
        with self._choosing:
            if self._opening is opening:
                self._session = session
                session.calls_in_progress = CallsInProgress() if self.in_background() else None
                self._watch_drop(session.loop)
        if self._session is not session:
            await session.close()  # the app was closed, or moved, meanwhile
        elif not self.in_background():
            await session.close_with_loop(functools.partial(_close_with_loop, weakref.ref(self)))

    # -- leaving

    def disconnect(self, *, moved: bool = False) -> Ending | None:
        """Stop using the session, and close it on its own loop; returns what to wait for. From any thread."""
        with self._choosing:
            home, session, opening, background = self._loop, self._session, self._opening, self._background
            if home is None:
                return self._before
            if not home.is_running():
                self._release()
                return None
            if moved and session is not None:
                session.moved, self._leaving = True, session  # first: a call there asks for one or the other
            self._session = self._loop = self._opening = self._background = None
            self.drop_quietly()
            before, left = self._before, Ending(home, background)
            self._before = left

        async def leave() -> None:
            await self._after(before)
            if opening is not None and session is None:
                with suppress(Exception):
                    await opening.ended()
            if session is not None:
                if session.calls_in_progress is not None and session.moved:
                    await session.calls_in_progress.ended(CALLS_LINGER)
                    self._leaving = None
                await session.close()

        left.start(leave, None if moved else CALLS_LINGER)
        return left

    def loop_ends(self) -> None:
        """On the app's loop: it is about to end."""
        self._loops_are_short |= self._loop is not self._lasting

    def _release(self) -> None:
        """The app's loop has ended without closing it: nothing can be awaited there any more."""
        self._loops_are_short |= self._loop is not self._lasting and not self.in_background()
        if self._session is not None:
            self._session.feed.follow({})
        self.drop_quietly()
        self._discard_store()
        self.before_close.clear()
        self._session = self._loop = self._opening = self._background = None

    async def _after(self, before: Ending | None) -> None:
        """Wait until the store is closed on another loop."""
        if before is not None:
            with suppress(Exception):  # the caller of close got the error
                if not await before.ended():
                    self._discard_store()

    def _discard_store(self) -> None:
        """Continue with a new store of the same kind: calls on the ended loop may still use the old one."""
        self._store.release()
        self._store = self._store.sibling()

    def _watch_drop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close everything when the app is garbage-collected."""
        self.drop_quietly()
        self._dropped = weakref.finalize(self, _drop, loop, self._store, self._background)
        self._dropped.atexit = False

    def drop_quietly(self) -> None:
        """Do nothing when the app is garbage-collected: a simulation ends with its processes."""
        if self._dropped is not None:
            self._dropped.detach()

    def at_exit(self) -> Ending | None:
        """At program exit: leave, if nothing else uses the loop."""
        home = self._loop
        if home is None or self.before_close or (home.is_running() and not self.in_background()):
            return None
        return self.disconnect()

    def live_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of the app, if it runs."""
        session = self.live_session()
        return None if session is None else session.loop

    def live_session(self) -> Session | None:
        """The open session, if its loop runs; for attributes that any thread may read: its settings."""
        session = self._session
        return session if session is not None and session.loop.is_running() else None

    def current_settings(self) -> Settings:
        """The current settings. While the app is closed, without those in the store."""
        session = self.live_session()
        if session is None:
            return combine(self._given, from_environment(os.environ), {})
        return session.settings

    def known_store_id(self) -> str | None:
        """The id of the store, if the open session knows it."""
        return None if self._session is None else self._session.store_id

    @property
    def store(self) -> Store:
        """The store itself, open or not."""
        return self._store

    @property
    def session(self) -> Session:
        """The open session, on the app's own loop."""
        here, session = asyncio._get_running_loop(), self._session  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
        if self._leaving is not None and self._leaving.loop is here:
            return self._leaving
        if session is None:
            raise ConfigError("the app was closed during the call: keep it open until all calls return")
        if here not in (None, session.loop):
            raise ConfigError(
                "the app moved to another event loop during the call: keep it on one loop until all calls return"
            )
        return session

    def after_fork(self) -> None:
        """In a forked child: the parent's connections must be neither used nor closed here."""
        if self._session is not None:
            self._session.feed.follow({})
        self.drop_quietly()
        if self._made_store is not None:
            self._made_store.abandon()  # open, or being opened
        _inherited.append((self._session, self._loop, self._background, self._lasting))
        self._forget()
        self.before_close.clear()
        if not self._seeded:
            self.entropy = fresh_entropy()


async def _itself(session: Session) -> Session:
    return session


async def _close_with_loop(runtime: weakref.ref[Runtime]) -> None:
    """The loop is about to end: close the app that uses it."""
    left = runtime()
    if left is not None and left.live_loop() is asyncio.get_running_loop():
        left.loop_ends()
        with suppress(TimeoutError):  # then the next use finds that the loop has ended
            async with asyncio.timeout(EXIT_LIMIT):
                await left.close()


def _drop(loop: asyncio.AbstractEventLoop, store: Store, background: BackgroundLoop | None) -> None:
    """The app was garbage-collected, on any thread: nothing is awaited here."""
    if loop.is_running():
        Ending(loop, background).start(store.close)
    else:
        store.release()


def _forget_parents() -> None:
    errors: list[Exception] = []
    for runtime in list(_runtimes):
        try:
            runtime.after_fork()
        except Exception as error:  # noqa: BLE001  # the others must forget too
            errors.append(error)
    if errors:
        raise errors[0]


def _close_at_exit() -> None:
    """Close the apps on background loops: drivers would warn about open connections."""
    clock = SystemClock()
    deadline = clock.monotonic() + EXIT_LIMIT
    for left in [runtime.at_exit() for runtime in list(_runtimes)]:
        if left is not None:
            with suppress(Exception):
                left.wait(max(0.0, deadline - clock.monotonic()))


os.register_at_fork(after_in_child=_forget_parents)
atexit.register(_close_at_exit)
