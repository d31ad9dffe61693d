"""A worker's claims, compared with the store's view: cancelled, lost, or never received by this worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from ..client.claims import ManualClaims, confirmed
from ..client.session import Session
from ..core.job import WAITING, Record
from ..core.lifecycle import Outcome
from ..core.operations import Ask, Change, Claims, HeartbeatReply, HeldClaim, Holder, Patch
from .slots import Key, Slots
from .unstarted import Unstarted

logger = logging.getLogger("holdfast")
RELEASE_FAILED = "release claims that have no running job; it tries again after a later heartbeat"
REPEAT_WAIT = 3600.0
"""Seconds after which a wait for a notification is repeated."""
CLEAR_FAILED = "undo the crash count of jobs that were recovered while it was alive; they may be quarantined"


class Leases:
    """Makes this worker's claims, and compares the claims in the store with the jobs that run here.

    A claim has the token of the request that made it. Until that request is answered and its jobs have begun, the claim
    is in transit. A claim of no such request can never arrive and is released. Both are decided on the worker's loop.
    """

    def __init__(
        self,
        session: Session,
        claims: ManualClaims,
        slots: Slots,
        holder: Holder,
        unstarted: Unstarted | None = None,
    ) -> None:
        self._unstarted = unstarted
        self._session = session
        self._claims = claims
        self._slots = slots
        self.holder = holder
        self._loop = asyncio.get_running_loop()
        self._unanswered: set[int] = set()
        """The tokens of claim requests whose jobs have not begun yet."""
        self._strays: dict[Key, float] = {}
        self._cancelled: frozenset[tuple[Key, int]] = frozenset()
        """Claims in transit, with their tokens, whose cancellation was requested before the last heartbeat."""
        self._watching: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._clearing: set[asyncio.Task[None]] = set()

    async def claim(self, ask: Ask, begin: Callable[[Record], None]) -> Claims:
        """Claim jobs and begin to run them; none while the worker is quiet."""
        if self._slots.closed:
            return Claims([])
        self._unanswered.add(ask.token)
        try:
            with nullcontext() if self._unstarted is None else self._unstarted.requesting(ask.token):
                claims = await confirmed(self._session, ask)
                for record in claims.records:
                    begin(record)
                    if ((record.id, record.fence), record.token) in self._cancelled:
                        self._cancel((record.id, record.fence))
        finally:
            self._unanswered.discard(ask.token)
        return claims

    async def close(self) -> None:
        """Stop releasing claims: the rest is released when the worker deregisters."""
        for task in (self._watching, self._releasing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._clearing:
            await asyncio.wait(self._clearing)

    def watch(self, heartbeat_soon: Callable[[], None]) -> None:
        """From now on, send a heartbeat when a cancellation of its jobs, or another request to it, may have come.

        The notification is a hint: the reply to the heartbeat decides. Without it, the next regular heartbeat does.
        """
        listener = self._session.store.listen([f"holder/{self.holder.id}"])

        async def watch() -> None:
            while True:
                if await listener.wait(REPEAT_WAIT):
                    heartbeat_soon()

        self._watching = self._loop.create_task(watch())
        self._watching.add_done_callback(lambda _: listener.close())

    @property
    def idle(self) -> bool:
        """Whether nothing runs, no outcome is unwritten, and no claim is unanswered."""
        return not self._slots.runs and not self._slots.settling and not self._unanswered

    def before_heartbeat(self) -> frozenset[Key]:
        """On the heartbeat thread: the claims that ran before it. (Copying a dict's keys is atomic.)"""
        return frozenset(self._slots.runs)

    def after_heartbeat(self, known: frozenset[Key], heartbeat: HeartbeatReply) -> bool:
        """On the heartbeat thread: pass the reply to the loop; False if the loop has ended, and the worker with it."""
        try:
            self._loop.call_soon_threadsafe(self._compare, known, heartbeat)
        except RuntimeError:
            return False
        return True

    def _compare(self, known: frozenset[Key], heartbeat: HeartbeatReply) -> None:
        runs = self._slots.runs
        held = {(one.id, one.fence): one for one in heartbeat.held}
        lost: list[Record] = []
        for key in sorted(known - held.keys()):
            if (run := runs.get(key)) is not None and run.why != "lost":
                run.stop("lost")
                lost.append(run.record)
        if lost:
            task = self._loop.create_task(self._clear(lost))
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)
            task.add_done_callback(partial(self._log_failure, CLEAR_FAILED))
        cancelled = [(key, one.token) for key, one in held.items() if one.cancel]
        self._cancelled = frozenset(claim for claim in cancelled if claim[1] in self._unanswered)
        for key, _ in cancelled:
            self._cancel(key)
        self._release_strays(held)

    def _cancel(self, key: Key) -> None:
        if (run := self._slots.runs.get(key)) is not None and run.why is None:
            run.stop("cancel")

    async def _clear(self, lost: list[Record]) -> None:
        """Recovered jobs of this worker count as crashed. It is alive: undo that for those that still wait."""
        session, before = self._session, {record.id: record for record in lost}
        found = await session.store.get(list(before))
        changes = [
            Change(now.id, now.state, now.fence, Patch(quarantined=was.quarantined, crashes=was.crashes))
            for now in found
            if now is not None and now.state in WAITING and now.fence == (was := before[now.id]).fence
        ]
        if changes:
            await session.commit.change(changes)

    def _release_strays(self, held: dict[Key, HeldClaim]) -> None:
        """Release claims whose answer never arrived here, once seen for half a heartbeat interval."""
        now = self._session.clock.monotonic()
        unknown = held.keys() - self._slots.runs.keys() - self._slots.settling
        strays = sorted(key for key in unknown if held[key].token not in self._unanswered)
        self._strays = {key: self._strays.get(key, now) for key in strays}
        old = [key for key, since in self._strays.items() if now - since > self.holder.lease / 6]
        if old and (self._releasing is None or self._releasing.done()):
            self._releasing = self._loop.create_task(self._release(old))
            self._releasing.add_done_callback(partial(self._log_failure, RELEASE_FAILED))

    async def _release(self, keys: list[Key]) -> None:
        records = await self._session.store.get([id for id, _ in keys])
        for key, record in zip(keys, records, strict=True):
            mine = record is not None and record.holder == self.holder.id and record.fence == key[1]
            if record is not None and mine:
                await self._claims.settle(record, Outcome.released())

    def _log_failure(self, text: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("worker %s could not %s: %s", self.holder.id, text, error)
