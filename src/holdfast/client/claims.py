"""Claims made by hand, and how any claim ends: a worker's, a lost one's, or one that a monitor gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    cast,
)

import msgspec

from ..core import lifecycle
from ..core.errors import (
    HoldfastError,
    LeaseLost,
    WrongState,
)
from ..core.job import Record, State
from ..core.operations import Beat, Claims, Holder, Note, Settlement
from ..core.retry import Backoff
from ..core.validation import (
    PAGE_LIMIT,
    checked_lease,
    checked_limit,
    checked_names,
    checked_seconds,
    error_text,
)
from ..tasks.registry import Registry
from .claim import Claim, claim_by_hand
from .inspection import Overseeing
from .process_identity import own_process
from .runtime import carried, unless_delivered

if TYPE_CHECKING:
    from ..app import Holdfast


def _give_back(app: Settling, claims: list[Claim]) -> None:
    with suppress(HoldfastError):  # the app was closed meanwhile: the lease's end gives them back
        app.session.commit.give_back(Claims([claim.record for claim in claims]))


class Settling(Overseeing):
    """The part of an app that claims and settles."""

    registry: Registry

    @carried
    async def claim(
        self,
        queues: Sequence[str] | str = ("default",),
        *,
        tasks: Sequence[str] | None = None,
        limit: int = 1,
        lease: float = 300.0,
        wait: float = 0.0,
    ) -> list[Claim]:
        """Claim up to `limit` jobs by hand, under one lease, lost ones recovered first.

        [] where there are none, and none came within `wait` seconds. They are released if this process ends.
        """
        process = own_process(self.clock)
        return await self.claim_for(process, queues, tasks=tasks, limit=limit, lease=lease, wait=wait)

    @carried
    @unless_delivered(_give_back)
    async def claim_for(
        self,
        process: str,
        queues: Sequence[str] | str,
        *,
        tasks: Sequence[str] | None,
        limit: int,
        lease: float,
        wait: float,
    ) -> list[Claim]:
        """As `claim`, for another process than this one; "": for one that nobody can look for."""
        names = checked_names(queues, "queue")
        wanted = None if tasks is None else checked_names(tasks, "task")
        limit, lease, patience = checked_limit(limit), checked_lease(lease), checked_seconds(wait, "wait")
        session, loop = self.session, asyncio.get_running_loop()
        deadline = loop.time() + patience  # the waiter's own time: a clock that a test has stopped must not stop it
        bell = session.store.listen([f"queue/{name}" for name in names]) if patience else None
        try:
            while True:
                if "sweeps" not in session.store.features:  # else whoever has the store does
                    await self.recover()
                    await session.tidy_now_and_then()
                claims = await claim_by_hand(cast("Holdfast", self), names, wanted, limit, lease, process=process)
                if claims or bell is None or (left := deadline - loop.time()) <= 0:
                    return claims
                await session.wait(bell, min(left, session.settings.poll))
        finally:
            if bell is not None:
                bell.close()

    @carried
    async def recover(self, *, holder: str | None = None) -> int:
        """Settle the claims whose lease was lost (or all of a dead `holder`'s), so that they run again; how many.

        Claims of a process of this machine that is proven to be gone are lost at once.
        """
        session = self.session
        if holder is None:
            found = [*await session.lost(PAGE_LIMIT), *await session.abandoned(PAGE_LIMIT)]
            lost = list({(one.record.id, one.record.fence): one for one in found}.values())
        else:
            lost = await session.store.expired(PAGE_LIMIT, holder)
        if not lost:
            return 0
        ends = [self.settlement(one.record, lifecycle.Outcome.lost(), seen_beat=one.beat) for one in lost]
        try:
            written = await asyncio.gather(*(session.commit.settle(end) for end in ends))
        except Exception:
            session.give_way()  # a store that can be read but not written: nobody's heart can beat
            raise
        settled = [(one.record, end) for one, end, ok in zip(lost, ends, written, strict=True) if ok]
        for record, end in settled:
            self.events.settled(record, end)
        self.events.swept([record for record, _ in settled])
        return len(settled)

    def settlement(self, record: Record, outcome: lifecycle.Outcome, *, seen_beat: int | None = None) -> Settlement:
        """How a claim ends, by the rules of the app and the task."""
        rules = self.session.rules
        task = self.registry.tasks.get(record.task)
        if task is not None and (task.retry is not None or task.retention is not None):
            rules = msgspec.structs.replace(
                rules,
                backoff=task.retry if isinstance(task.retry, Backoff) else rules.backoff,
                retention=rules.retention if task.retention is None else task.retention,
            )
        entropy = self.entropy
        return lifecycle.settle(
            record, outcome, rules, nonce=entropy.token(), fraction=entropy.fraction(), seen_beat=seen_beat
        )

    @carried
    async def settle(self, record: Record, outcome: lifecycle.Outcome) -> bool:
        """End a claim, fenced; False if somebody else has ended it."""
        end = self.settlement(record, outcome)
        written = await self.session.commit.settle(end)
        if written:
            self.events.settled(record, end)
        else:
            self.events.refused(record)
        return written

    @carried
    async def note(self, note: Note) -> bool:
        """Write what a running job says of itself, fenced."""
        return await self.session.commit.note(note)

    @carried
    async def beat(self, holder: Holder) -> Beat:
        """Renew a holder's lease; what it still holds."""
        return (await self.session.store.beat([holder]))[0]

    @carried
    async def leave(self, holders: Sequence[str]) -> None:
        """These holders are gone: forget them, or end the leases of those that still hold jobs."""
        await self.session.store.leave(holders)

    @carried
    async def fail(self, id: str, error: str | BaseException) -> None:
        """A monitor's word about a lost job: end its claim as failed, as its worker would have."""
        text = error_text(error)
        record = await self.session.record(id)
        if record.state != State.RUNNING:
            raise WrongState(id, record.state, "only a running job can be failed")
        if not await self.settle(record, lifecycle.Outcome.failed(text)):
            raise LeaseLost(id, record.fence)
