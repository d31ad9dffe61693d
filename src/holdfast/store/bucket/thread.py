"""The engine's thread: all store objects of a process with the same bucket share one engine, whatever their loop.

So a task that blocks its loop does not stop the heartbeat, a process has one state in its memory, and a heartbeat
shares an entry with other pending writes.
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
from .protocol import Bucket
from .timings import Timings

T = TypeVar("T")


class EngineRun:
    """One run of the engine, on a separate thread."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.engine: Future[Engine] = Future()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ending = False
        self.over: Future[None] = Future()

    def start(self) -> None:
        # A daemon, so that a program that does not close the store still ends.
        threading.Thread(target=self._run, name="holdfast-bucket", daemon=True).start()

    def _run(self) -> None:
        try:
            asyncio.run(self.serve(fresh_entropy()))
        finally:
            self.over.set_result(None)

    async def serve(self, entropy: Entropy) -> None:
        """Open an engine, and close it after `stop`."""
        self.loop = asyncio.get_running_loop()
        if self._ending:  # its only user closed it before this thread began
            self._stop.set()
        shared = self._shared
        try:
            engine = Engine(shared.bucket, shared.clock, entropy, shared.timings)
            engine.notify, engine.listened = shared.listeners.notify, lambda: bool(shared.listeners)
            shared.listeners.on_added = partial(self.loop.call_soon_threadsafe, engine.listener_added.set)
            if isinstance(shared.bucket, Folder):
                shared.bucket.make()
            await engine.open()
        except BaseException as error:  # noqa: BLE001  # raised by `open`
            self.engine.set_exception(error)
            return
        self.engine.set_result(engine)
        await self._stop.wait()
        await engine.close()

    def stop(self) -> None:
        """Close the engine soon."""
        self._ending = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self.loop.call_soon_threadsafe(self._stop.set)

    async def end(self) -> None:
        """Close the engine, and wait until it is closed."""
        self.stop()
        await asyncio.wrap_future(self.over)


class Shared:
    """One engine and its thread, alive while at least one store is open."""

    run_class = EngineRun
    """How the engine runs; a simulation replaces it, because it has no threads."""

    def __init__(self, bucket: Bucket, clock: Clock, timings: Timings) -> None:
        self.bucket = bucket
        self.clock = clock
        self.timings = timings
        self.listeners = Listeners()
        self._lock = threading.Lock()
        self._users = 0
        self._current: EngineRun | None = None

    def anew(self) -> Shared:
        """The same bucket and settings, without a running engine."""
        return type(self)(self.bucket, self.clock, self.timings)

    async def open(self) -> None:
        """One more user; the first starts the engine, and all wait until it has joined the log."""
        with self._lock:
            self._users += 1
            if self._current is None:
                self._current = self.run_class(self)
                self._current.start()
            run = self._current
        try:
            await asyncio.shield(asyncio.wrap_future(run.engine))
        except GeneratorExit:  # its loop has ended: nothing can be awaited
            self.release()
            raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """One user less; the last ends the engine, and waits for it."""
        if (run := self._last()) is not None:
            await run.end()

    def release(self) -> None:
        """One user less, whose loop has ended; the last ends the engine."""
        if (run := self._last()) is not None:
            run.stop()

    def _last(self) -> EngineRun | None:
        """One user less: the run of the engine to end, if that was the last."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return None
            run, self._current = self._current, None
            return run

    async def run(self, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the engine's thread."""
        run = self._current
        if run is None or run.loop is None or not run.engine.done():
            raise StoreUnavailable.not_open(f"in {self.bucket}")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(run.engine.result()), run.loop))
