"""What flows wait for: as jobs of theirs end here, whatever waited for them is freed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..client.session import Session
from ..core.errors import HoldfastError
from ..flows.creation import ENDED, MakingWatch, pending
from ..flows.release import Release
from ..store.protocol import records_of

AT_LAST = 5.0
"""Seconds for which a worker that stops goes on with what it is about to free."""


class DependencyRelease:
    """Frees at once what waits for the jobs that end here; what is left behind by others is found by looking."""

    def __init__(self, session: Session, release: Release, every: float) -> None:
        self._session = session
        self._release = release
        self._every = every
        self._ended: list[str] = []
        self._some = asyncio.Event()
        self._seen: set[str] | None = None
        """Ends that were told, and not dealt with, at the last look. The first one deals with all."""
        self._making = MakingWatch(session.clock)
        self._loop = asyncio.get_running_loop()
        self._started = self._next_look = self._loop.time()
        self._told = session.commit.hear_of_ends
        self._ours = "sweeps" not in session.store.features  # else whoever has the store does all of this
        self._busy = self._ours
        if self._ours:
            session.watched.watch(ENDED)
            self._told.add(self._heard)
        self._task = asyncio.create_task(self._run())

    async def idle(self) -> bool:
        """Whether all that has ended here is dealt with, by whomever."""
        if self._ours:
            return not self._ended and not self._busy
        try:
            left = await records_of(self._session.store, ENDED)
            making = [id for id, kept in left.items() if pending(kept).making is not None]
            return len(making) == len(left) and not any(await self._session.store.get(making))
        except HoldfastError:
            return False  # the next claim says what is wrong

    def _heard(self, id: str) -> None:
        self._ended.append(id)
        self._some.set()

    async def stop(self) -> None:
        """Free what has ended here, then no more. What is not done in time is found by others."""
        self._told.discard(self._heard)
        self._some.set()
        await asyncio.wait([self._task], timeout=AT_LAST)
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(AT_LAST):
                    await self._free()

    async def _run(self) -> None:
        while self._heard in self._told:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_look):
                    await self._some.wait()
            await self._free()

    async def _free(self) -> None:
        self._some.clear()
        ended, self._ended = self._ended, []
        self._busy = True
        try:
            if ended:
                await self._release.free(ended)
                ended = []
            if (now := self._loop.time()) >= self._next_look:  # however many end here
                self._next_look = now + self._every * (0.5 + self._session.entropy.fraction())
                max_age = min(self._every / 2, now - self._started)  # no read from before this worker began
                left = await self._session.watched.of(ENDED, max_age)
                self._seen = await self._release.repair(self._seen, self._making, left)
        except Exception as error:  # noqa: BLE001  # whatever a driver raises: the ends are told, and looked for again
            pause = self._session.outages.failed("flows", error, self._every)
            self._next_look = max(self._next_look, self._loop.time() + pause * 0.5)
            self._ended += ended  # with the next look, or the next end
        else:
            self._session.outages.worked("flows")
        finally:
            self._busy = False
