"""A heartbeat: renews one holder's lease from its own thread and connection.

So a task that blocks the event loop keeps its lease. Each heartbeat returns the holder's claims according to the store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from ..core.errors import StoreUnavailable
from ..core.operations import HeartbeatReply, Holder
from ..observe.outages import Outages
from ..store.notify import wait_for
from ..store.protocol import Store
from .process_usage import ProcessUsage

T = TypeVar("T")
SHORTEST_PATIENCE = 5.0
"""Seconds. The minimum timeout of a heartbeat, which is otherwise a third of the lease."""
SERVE_SECONDS = 2.0
"""Seconds for which the last requests are served when the heartbeat stops."""


class Heartbeat:
    """Sends a heartbeat every third of the lease, and retries soon after a failure, until it is stopped.

    `before()` is called on the heartbeat's thread ahead of each heartbeat; its result is passed to `after`, which
    returns whether to continue. `failed()` is called there after a failed heartbeat. `serve(store, reply)` runs there
    after each heartbeat, and does not delay the next one.
    """

    def __init__(
        self,
        store: Store,
        holder: Holder,
        before: Callable[[], frozenset[Any]],
        after: Callable[[frozenset[Any], HeartbeatReply], bool],
        failed: Callable[[], None],
        *,
        outages: Outages,
        serve: Callable[[Store, HeartbeatReply], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self.holder = self.sent = holder
        """`sent`: with the last measured CPU and memory."""
        self._answered = asyncio.Event()
        self._answered.set()
        self._serve = serve
        self._serving: asyncio.Task[None] | None = None
        self._serve_again = False
        self._before = before
        self._after = after
        self._failed = failed
        self._outages = outages
        self._thread = threading.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._started = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._started.wait()
        if self._loop is None:
            raise StoreUnavailable(
                f"the heartbeat of {self.holder.id} could not start: this process has no free file descriptor; raise"
                " `ulimit -n`"
            )

    def stop(self) -> None:
        """Stop, and wait for a heartbeat in progress."""
        self._stopping = True
        self.soon()
        self._thread.join()

    def soon(self) -> None:
        """Send the next heartbeat now, since its reply may have changed. From any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has stopped
                self._loop.call_soon_threadsafe(self._wake.set)

    async def stopped(self) -> None:
        """Stop without blocking the caller's loop."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def wait() -> None:
            self.stop()
            loop.call_soon_threadsafe(done.set_result, None)

        # Not `to_thread`: its threads may all be busy with the user's own work.
        threading.Thread(target=wait, name="holdfast-heartbeat-stop", daemon=True).start()
        await done

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        finally:
            self._started.set()

    async def _answer(self, call: Awaitable[T]) -> T:
        """The answer of the store, in time for another try before the lease expires."""
        patience = max(self.holder.lease / 3, SHORTEST_PATIENCE)
        try:
            async with asyncio.timeout(patience):
                return await call
        except TimeoutError:
            raise StoreUnavailable(
                f"the {self._store.name} store did not answer the heartbeat of {self.holder.id} within {patience:g} s;"
                " check the store and the network"
            ) from None

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        opened, usage = False, ProcessUsage()
        while not self._stopping:
            pause = self.holder.lease / 3
            try:
                if not opened:
                    await self._answer(self._store.open())
                    opened = True
                known = self._before()
                self._answered.clear()
                try:
                    self.sent = usage.measured(self.holder)
                    (heartbeat,) = await self._answer(self._store.heartbeat([self.sent]))
                finally:
                    self._answered.set()
            except Exception as error:  # noqa: BLE001  # no error may stop the heartbeat while there are claims
                self._failed()
                self._outages.failed("heartbeat", error)
                # The lease has not expired yet: retry soon, also after a rejection, not a third of a lease later.
                pause = min(1.0, pause / 4)
            else:
                self._outages.worked("heartbeat")
                if not self._after(known, heartbeat):
                    break
                self._begin_serving(heartbeat)
            await wait_for(self._wake, pause)
        if (serving := self._serving) is not None:
            await asyncio.wait([serving], timeout=SERVE_SECONDS)
            serving.cancel()
            await asyncio.wait([serving], timeout=SERVE_SECONDS)  # it still uses the store
        if opened:
            await self._store.close()

    async def send_now(self) -> None:
        """Store the new description of the holder, after an active request with the old one."""
        await self._answered.wait()
        await self._store.heartbeat([replace(self.holder, cpu=self.sent.cpu, memory=self.sent.memory)])

    def _begin_serving(self, reply: HeartbeatReply) -> None:
        if self._serve is None:
            return
        if self._serving is not None:
            self._serve_again = True  # what has just arrived may not be in its read
            return
        self._serving = asyncio.ensure_future(self._serve_in_time(reply))
        self._serving.add_done_callback(self._served)

    async def _serve_in_time(self, reply: HeartbeatReply) -> None:
        assert self._serve is not None
        await self._answer(self._serve(self._store, reply))

    def _served(self, serving: asyncio.Task[None]) -> None:
        self._serving = None
        if not serving.cancelled() and (error := serving.exception()) is not None:
            self._outages.failed("answering control requests", error)
        elif not serving.cancelled():
            self._outages.worked("answering control requests")
        if self._serve_again:
            self._serve_again = False
            self._wake.set()
