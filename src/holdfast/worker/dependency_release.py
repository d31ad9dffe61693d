"""Dependency release: when jobs of a flow end here, the jobs that wait for them become ready."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress

from ..client.session import Session
from ..client.watched_records import idle_pause
from ..core.errors import HoldfastError
from ..flows.creation import AWAITED, ENDED, MakingWatch, pending
from ..flows.release import Release
from ..store.protocol import Versioned, records_of

FLOWS_SEEN = 60.0
"""Seconds without an unhandled end after which a worker checks for them less often."""
AWAITED_AT_ONCE = 100
"""Awaited jobs outside of flows that one check reads, as whole records."""
STOP_TIMEOUT = 5.0
"""Seconds that a stopping worker spends, at most, on releasing the remaining dependents."""


class DependencyRelease:
    """Releases dependents of jobs that end here at once; periodic checks find those that other processes left."""

    def __init__(self, session: Session, release: Release, every: float) -> None:
        self._session = session
        self._release = release
        self._every = every
        self._ended: list[str] = []
        self._some = asyncio.Event()
        self._seen: set[str] | None = None
        """Recorded ends that were unhandled at the last check; None before the first check, which handles all."""
        self._making = MakingWatch(session.clock)
        self._loop = asyncio.get_running_loop()
        self._started = self._next_check = self._loop.time()
        self._flows_until = self._started
        """Until then a client may end jobs of flows, whose dependents only workers release: check often."""
        self._awaited_turn = 0
        """Counts checks of awaited jobs: each reads the next ones."""
        self._end_callbacks = session.commit.end_callbacks
        self._enabled = "sweeps" not in session.store.features  # else the server does all of this
        self._busy = self._enabled
        if self._enabled:
            session.watched.watch(ENDED)
            session.watched.watch(AWAITED)
            self._end_callbacks.add(self._on_end)
        self._task = asyncio.create_task(self._run())

    async def idle(self) -> bool:
        """Whether the dependents of all jobs that ended here are released, by any process."""
        try:
            if self._enabled:
                if self._ended or self._busy:
                    return False
                awaited = await self._session.watched.of(AWAITED, self._every)
                return not awaited or not await self._release.release_awaited(awaited)
            left = await records_of(self._session.store, ENDED)
            making = [id for id, kept in left.items() if pending(kept).making is not None]
            return len(making) == len(left) and not any(await self._session.store.get(making))
        except HoldfastError:
            return False  # the next claim reports the error

    def _on_end(self, id: str) -> None:
        self._ended.append(id)
        self._some.set()

    async def stop(self) -> None:
        """Release the dependents of jobs that ended here, then stop. Other workers find what is not done in time."""
        self._end_callbacks.discard(self._on_end)
        self._some.set()
        await asyncio.wait([self._task], timeout=STOP_TIMEOUT)
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT):
                    await self._free()

    async def _run(self) -> None:
        while self._on_end in self._end_callbacks:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_check):
                    await self._some.wait()
            await self._free()

    def _pause(self, now: float) -> float:
        """Average seconds between two checks."""
        idle = self._session.watched.notified and now >= self._flows_until
        return 2 * idle_pause(self._every, notified=idle) if idle else self._every

    async def _release_awaited(self, awaited: Mapping[str, Versioned]) -> None:
        """Check some of the awaited jobs, in turn, and for one of them whether any job still waits for it."""
        names, turn = sorted(awaited), self._awaited_turn
        self._awaited_turn += 1
        parts = math.ceil(len(names) / AWAITED_AT_ONCE)
        await self._release.release_awaited({name: awaited[name] for name in names[turn % parts :: parts]})
        one = names[turn % len(names)]
        await self._release.drop_unawaited(one, awaited[one])

    async def _free(self) -> None:
        self._some.clear()
        ended, self._ended = self._ended, []
        self._busy = True
        try:
            if ended:
                await self._release.free(ended)
                ended = []
            if (now := self._loop.time()) >= self._next_check:  # however many end here
                every = self._pause(now)
                self._next_check = now + every * (0.5 + self._session.entropy.fraction())
                max_age = min(every / 2, now - self._started)  # no read from before this worker started
                left = await self._session.watched.of(ENDED, max_age)
                awaited = await self._session.watched.of(AWAITED, every)  # from the same read
                if left:
                    self._flows_until = now + FLOWS_SEEN
                if left or len(awaited) > AWAITED_AT_ONCE:
                    self._next_check = min(self._next_check, now + self._every)
                elif awaited:
                    pause = idle_pause(self._every, notified=self._session.watched.notified)
                    self._next_check = min(self._next_check, now + pause)
                self._seen = await self._release.repair(self._seen, self._making, left)
                if awaited:
                    await self._release_awaited(awaited)
        except Exception as error:  # noqa: BLE001  # whatever a driver raises: the ends are recorded and checked again
            pause = self._session.outages.failed("releasing flow jobs", error, self._every)
            self._next_check = max(self._next_check, self._loop.time() + pause * 0.5)
            self._ended += ended  # with the next check, or the next end
        else:
            self._session.outages.worked("releasing flow jobs")
        finally:
            self._busy = False
