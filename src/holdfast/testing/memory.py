"""Gives an app a memory store with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager

from ..app import Holdfast, parts_of
from ..client.runtime import Runtime
from ..core.errors import ConfigError
from ..store.reference.memory import MemoryStore
from ..sync.blocking import runs_on
from ..worker import Worker
from ..worker.worker import served_queues
from .clock import ManualClock
from .inline import inline


class Bench:
    """An app on a new memory store, for one test: `clock` changes only by `advance`."""

    def __init__(self, app: Holdfast, clock: ManualClock, store: MemoryStore) -> None:
        self.app = app
        self.clock = clock
        self._store = store

    def advance(self, seconds: float) -> None:
        """Advance the clock, and notify the workers."""
        self.clock.advance(seconds)
        self._store.notify_all()

    def work(self) -> Awaitable[None]:
        """Run everything that is due, in every queue, then return. Await it in async code; elsewhere it blocks."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            runs_on(parts_of(self.app).runtime)(self._work)
            return _Done()
        return self._work()

    def inline(self) -> inline:
        """A block under which every job runs where it is enqueued; see `holdfast.testing.inline`."""
        return inline(self.app)

    async def _work(self) -> None:
        known: set[str] = set()
        while (queues := await self._queues() | known) != known:  # a job may enqueue into a queue that was empty
            known = queues
            await Worker(self.app, sorted(queues), until_idle=True).run()

    async def _queues(self) -> set[str]:
        return {queue.name for queue in (await self.app.stats()).queues} | set(
            served_queues(parts_of(self.app).registry)
        )


@contextmanager
def on_memory(app: Holdfast) -> Generator[Bench]:
    """While the block runs, the app uses an empty memory store and a manual clock.

    Its tasks, hooks and settings stay unchanged; its own store is not used.
    """
    parts = parts_of(app)
    runtime, events = parts.runtime, parts.events
    if runtime.live_loop() is not None and not runtime.in_background():
        raise ConfigError("the app is open: close it before a test replaces its store")
    runtime.close_blocking()
    was, url = {name: vars(runtime)[name] for name in ("_store", "clock")}, parts.url
    clock = ManualClock()
    store = MemoryStore(clock)
    vars(runtime).update(_store=store, clock=clock)
    parts.url = "memory://"
    events.clock, steady = clock, events.clock
    try:
        yield Bench(app, clock, store)
    finally:
        _close(runtime)
        vars(runtime).update(was)
        parts.url = url
        events.clock = steady


def _close(runtime: Runtime) -> None:
    if runtime.live_loop() is None or runtime.in_background():
        runtime.close_blocking()
    else:  # it runs on this loop, which cannot wait: a memory store has nothing to close
        runtime.disconnect()


class _Done:
    """An awaitable that is already done, and need not be awaited."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()
