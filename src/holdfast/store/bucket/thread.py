"""The engine's thread: all store objects of a process with the same bucket share one engine, whatever their loop.

So a task that blocks its loop does not stop the heartbeat, a process has one state in its memory, and a heartbeat rides
along with whatever else is being written.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from ...core.clock import Clock, Entropy, fresh_entropy
from ...core.errors import StoreUnavailable
from .engine import Engine
from .folder import Folder
from .listeners import Listeners
from .seam import Bucket
from .timings import Pace

T = TypeVar("T")


class Life:
    """One run of the engine, on a thread of its own."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.engine: Future[Engine] = Future()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ending = False
        self.over: Future[None] = Future()

    def start(self) -> None:
        # A daemon, so that a program that forgot to close still ends.
        threading.Thread(target=self._run, name="holdfast-bucket", daemon=True).start()

    def _run(self) -> None:
        try:
            asyncio.run(self.live(fresh_entropy()))
        finally:
            self.over.set_result(None)

    async def live(self, entropy: Entropy) -> None:
        """Open an engine, and close it when it is time."""
        self.loop = asyncio.get_running_loop()
        if self._ending:  # whoever opened it was gone before this thread had begun
            self._stop.set()
        shared = self._shared
        try:
            engine = Engine(shared.bucket, shared.clock, entropy, shared.pace)
            engine.notify, engine.listened = shared.listeners.notify, lambda: bool(shared.listeners)
            shared.listeners.heard = partial(self.loop.call_soon_threadsafe, engine.heard.set)
            if isinstance(shared.bucket, Folder):
                shared.bucket.make()
            await engine.open()
        except BaseException as error:  # noqa: BLE001  # belongs to whoever opens
            self.engine.set_exception(error)
            return
        self.engine.set_result(engine)
        await self._stop.wait()
        await engine.close()

    def stop(self) -> None:
        """Let the engine close."""
        self._ending = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self.loop.call_soon_threadsafe(self._stop.set)

    async def end(self) -> None:
        """Let the engine close, and wait until it has."""
        self.stop()
        await asyncio.wrap_future(self.over)


class Shared:
    """One engine and its thread, alive while at least one store is open."""

    life_class = Life
    """How the engine runs: a simulation, in which there are no threads, has another."""

    def __init__(self, bucket: Bucket, clock: Clock, pace: Pace) -> None:
        self.bucket = bucket
        self.clock = clock
        self.pace = pace
        self.listeners = Listeners()
        self._lock = threading.Lock()
        self._users = 0
        self._life: Life | None = None

    def anew(self) -> Shared:
        """The same, with nothing of this one's life."""
        return type(self)(self.bucket, self.clock, self.pace)

    async def open(self) -> None:
        """One more user; the first starts the engine, and all wait until it has joined the log."""
        with self._lock:
            self._users += 1
            if self._life is None:
                self._life = self.life_class(self)
                self._life.start()
            life = self._life
        try:
            await asyncio.shield(asyncio.wrap_future(life.engine))
        except GeneratorExit:  # its loop has ended: nothing can be awaited
            self.release()
            raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """One user less; the last ends the engine, and waits for it."""
        if (life := self._last()) is not None:
            await life.end()

    def release(self) -> None:
        """One user less, whose loop has ended; the last ends the engine."""
        if (life := self._last()) is not None:
            life.stop()

    def _last(self) -> Life | None:
        """One user less: the engine's life, if that was the last."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return None
            life, self._life = self._life, None
            return life

    async def run(self, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Do something on the engine's thread."""
        life = self._life
        if life is None or life.loop is None or not life.engine.done():
            raise StoreUnavailable(f"the store in {self.bucket} is not open: call open() first")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(life.engine.result()), life.loop))
