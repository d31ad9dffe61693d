"""Gives an app a memory store with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from datetime import timedelta

from ..app import Holdfast, parts_of
from ..client.runtime import Runtime
from ..core.errors import ConfigError
from ..core.job import Record, State
from ..core.operations import Where
from ..core.waiting import COMPATIBLE
from ..loading import import_tasks
from ..sync.blocking import runs_on
from ..worker.worker import served_queues
from .calling_thread import BenchWorker, new_answer
from .clock import ManualClock
from .failures import Failures, failures_logged
from .inline import inline
from .own_transaction import BoundMemoryStore
from .verbs import every


class Bench:
    """An app on a new memory store, for one test: `clock` changes only by `advance`."""

    def __init__(self, app: Holdfast, clock: ManualClock, store: BoundMemoryStore, failures: Failures) -> None:
        self.app = app
        self.clock = clock
        self._store = store
        self._failures = failures

    def advance(self, seconds: float | timedelta) -> None:
        """Advance the clock, and notify the workers."""
        self.clock.advance(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)
        self._store.notify_all()

    def work(self, *, check: bool = True) -> Awaitable[None]:
        """Run everything that is due, in every queue, then return. Await it in async code; elsewhere it blocks.

        In blocking code, plain functions run in the calling thread. Raises JobFailed if a job ended dead, from the
        exception of its task, or was refused because its task or arguments are unknown; not with `check=False`.
        """
        if asyncio._get_running_loop() is not None:  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  # no error to catch
            return self._work(check)
        runs_on(parts_of(self.app).runtime)(self._work, check)
        return _Done()

    def inline(self) -> inline:
        """A block under which every job runs where it is enqueued; see `holdfast.testing.inline`."""
        return inline(self.app)

    async def _work(self, check: bool) -> None:
        known: set[str] = set()
        before = {(record.id, record.fence) for record in await self._failed()}
        while (queues := await self._queues() | known) != known:  # a job may enqueue into a queue that was empty
            known = queues
            await BenchWorker(self.app, sorted(queues), until_idle=True).run()
        if check:
            failed = [record for record in await self._failed() if (record.id, record.fence) not in before]
            self._failures.raise_first(sorted(failed, key=lambda record: record.seq))

    async def _failed(self) -> list[Record]:
        """The dead jobs, and those that were refused."""
        dead, refused = Where(states=(State.DEAD,)), Where(waiting_for=COMPATIBLE)
        return [*await every(self._store, dead), *await every(self._store, refused)]

    async def _queues(self) -> set[str]:
        return {queue.name for queue in (await self.app.stats()).queues} | set(
            served_queues(parts_of(self.app).registry)
        )


@contextmanager
def on_memory(app: Holdfast) -> Generator[Bench]:
    """While the block runs, the app uses an empty memory store and a manual clock.

    Its tasks, hooks and settings stay unchanged; its own store is not used. The store accepts `connection=`: the job
    is stored when that transaction commits, or at once if its end cannot be observed.
    """
    import_tasks(app)
    parts = parts_of(app)
    runtime, events, hooks = parts.runtime, parts.events, parts.hooks
    if runtime.in_test:
        raise ConfigError("the app is on a memory store already: use the bench of the outer block or fixture")
    if runtime.live_loop() is not None and not runtime.in_background():
        raise ConfigError("the app is open: close it before a test replaces its store")
    runtime.close_blocking()
    was, url = {name: vars(runtime)[name] for name in ("_made_store", "clock")}, vars(parts)["_url"]
    clock = ManualClock()
    store = BoundMemoryStore(clock)
    vars(runtime).update(_made_store=store, clock=clock, new_answer=new_answer)
    parts.url = "memory://"
    events.clock, steady = clock, events.clock
    try:
        with failures_logged(hooks) as failures:
            yield Bench(app, clock, store, failures)
    finally:
        _close(runtime)
        del vars(runtime)["new_answer"]
        vars(runtime).update(was)
        vars(parts)["_url"] = url
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
