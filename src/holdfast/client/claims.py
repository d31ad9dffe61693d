"""Manual claims, for programs that consume jobs without a worker; and the end of any claim: of a worker, a lost one, or
one that a monitor marks as failed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ..core import lifecycle
from ..core.errors import InvalidState, LeaseLost, PayloadTooLarge, StoreUnavailable
from ..core.job import WAITING, Record, State
from ..core.lifecycle import Outcome
from ..core.operations import Ask, Change, Claims, HeartbeatReply, Holder, Note, Patch, Settlement
from ..core.retry import Backoff
from ..core.settings import MANUAL_LEASE
from ..core.validation import (
    PAGE_LIMIT,
    checked_lease,
    checked_limit,
    checked_names,
    checked_pid,
    checked_seconds,
    error_text,
)
from ..store.worker_writes import WorkerWrites
from ..tasks.registry import Registry
from ..version import __version__
from ..views import Job, job_view
from .audited import audited
from .heartbeat import Heartbeat
from .process_identity import own_process
from .runtime import Runtime, on_app_loop, unless_delivered
from .session import Session

CONFIRMATIONS = 3
"""Heartbeats that confirm a late claim: a connection that is late with all of them cannot keep a lease."""


def _undoes_a_crash(change: Change) -> bool:
    """A waiting job keeps all but its crash count: a worker whose claim was recovered is alive."""
    patch = change.patch
    if patch is None or change.expected_state not in WAITING or not isinstance(patch.crashes, int):
        return False
    return patch == Patch(quarantined=patch.quarantined, crashes=patch.crashes)


WRITES = WorkerWrites(change=_undoes_a_crash)


class Claim:
    """One claimed job under a lease, until it is settled. Every way to end it is fenced: LeaseLost if it has ended."""

    def __init__(self, claims: ManualClaims, record: Record, holder: Holder) -> None:
        self._claims = claims
        self._record = record
        self._ended = False
        self.holder = holder
        """The holder of its lease."""

    def __repr__(self) -> str:
        return f"<Claim {self._record.id!r} fence={self._record.fence}>"

    @property
    def job(self) -> Job:
        """The job as it was when it was claimed."""
        return job_view(self._record)

    @property
    def record(self) -> Record:
        """The job as the store keeps it."""
        return self._record

    @property
    def payload(self) -> bytes:
        """The stored payload."""
        return self._record.payload

    @property
    def fence(self) -> int:
        """Increases with every claim of this job."""
        return self._record.fence

    @property
    def token(self) -> int:
        """The random number of this claim, which a store compares together with the fence."""
        return self._record.token

    async def extend(self) -> None:
        """Renew the lease, for all claims that were made in the same call."""
        if not self._held(await self._claims.heartbeat(self.holder)):
            raise LeaseLost(self._record.id, self._record.fence)

    async def started(self, pid: int) -> None:
        """Record the process that works on the job."""
        record = self._record
        if not await self._claims.note(Note(record.id, record.seq, record.fence, record.token, pid=checked_pid(pid))):
            raise LeaseLost(record.id, record.fence)

    async def complete(self, result: Any = None) -> None:
        """End the job as succeeded; the result is stored as JSON, or by the codec of the task if this app has it."""
        data, limit = await self._claims.encode_result(self._record, result)
        if data is not None and len(data) > limit:
            raise PayloadTooLarge(
                f"the result of job {self._record.id} has {len(data)} bytes, over max_payload ({limit}). It was not"
                " written, and the claim is still active: give a smaller result"
            )
        await self._end(Outcome.succeeded(data))

    async def fail(self, error: str | BaseException, *, retry_in: float | None = None, dead: bool = False) -> None:
        """End the attempt as failed; the job is retried after its backoff or `retry_in` seconds, or ends (`dead`)."""
        text, delay = error_text(error), None if retry_in is None else checked_seconds(retry_in, "retry_in")
        await self._end(Outcome.dead(text) if dead else Outcome.failed(text, delay=delay))

    async def release(self, *, delay: float | None = None) -> None:
        """Release the job uncharged, at once or after `delay` seconds."""
        later = None if delay is None else Outcome.snoozed(checked_seconds(delay, "delay"))
        await self._end(later or Outcome.released())

    async def cancel(self) -> None:
        """End the job as cancelled."""
        await self._end(Outcome.cancelled())

    async def _end(self, outcome: Outcome) -> None:
        self._ended = True  # from here on, a missing claim is not a lost lease
        try:
            written = await self._claims.settle(self._record, outcome)
        except BaseException:
            self._ended = False
            raise
        if not written:
            raise LeaseLost(self._record.id, self._record.fence)

    def _held(self, heartbeat: HeartbeatReply) -> bool:
        return bool(_still_held([self._record], heartbeat))

    async def heartbeat(
        self, after: Callable[[frozenset[Any], HeartbeatReply], bool] = lambda _, __: True
    ) -> Heartbeat:
        """A heartbeat for this claim, not started."""
        session = await self._claims.opened()
        return Heartbeat(
            session.store.sibling(), self.holder, frozenset, after, session.give_way, outages=session.outages
        )

    @asynccontextmanager
    async def kept_alive(self) -> AsyncGenerator[Claim]:
        """Renew the lease while the block runs, from its own thread; a lost lease cancels the block (LeaseLost)."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        lost = over = False

        def stop() -> None:
            nonlocal lost
            if not (lost or over or self._ended) and task is not None:
                lost = True
                task.cancel()

        def after(_: frozenset[Any], heartbeat: HeartbeatReply) -> bool:
            if not self._held(heartbeat) and not loop.is_closed():
                loop.call_soon_threadsafe(stop)
            return not loop.is_closed()

        heartbeat = await self.heartbeat(after)
        heartbeat.start()
        try:
            yield self
        except asyncio.CancelledError:
            if lost and task is not None and task.uncancel() == 0:
                raise LeaseLost(self._record.id, self._record.fence) from None
            raise
        finally:
            over = True
            await heartbeat.stopped()


async def confirmed(session: Session, ask: Ask) -> Claims:
    """Claim jobs. An answer that took half a lease or longer is confirmed by a heartbeat before the jobs start.

    Their lease may have expired meanwhile: claims that are gone are left out.
    """
    clock, holder, asked = session.clock, ask.holder, session.clock.monotonic()
    claims = await session.commit.claim(ask)
    try:
        for _ in range(CONFIRMATIONS):
            if not claims.records or (now := clock.monotonic()) - asked < holder.lease / 2:
                return claims
            asked = now
            [heartbeat] = await session.store.heartbeat([holder])
            claims.records = _still_held(claims.records, heartbeat)
    except (Exception, asyncio.CancelledError):
        session.commit.give_back(claims)
        raise
    session.commit.give_back(claims)
    late = f"{CONFIRMATIONS} answers of the store in a row took longer than half of the lease ({holder.lease:g} s)"
    raise StoreUnavailable(f"no job was claimed: {late}. Use a longer lease, or check the network")


def _still_held(records: list[Record], heartbeat: HeartbeatReply) -> list[Record]:
    held = {(one.id, one.fence, one.token) for one in heartbeat.held}
    return [record for record in records if (record.id, record.fence, record.token) in held]


def new_holder(
    session: Session,
    kind: str,
    lease: float,
    queues: tuple[str, ...],
    *,
    tasks: tuple[str, ...] = (),
    slots: int = 0,
    process: str = "",
) -> Holder:
    """A holder with a unique id."""
    node, pid = socket.gethostname(), os.getpid()
    name = f"{node}:{pid}:{session.entropy.token():x}"
    release, now = session.settings.release, session.clock.now()
    return Holder(name, lease, kind, node, pid, queues, tasks, slots, __version__, now, process, release=release)


def _give_back(_: ManualClaims, session: Session, claims: list[Claim]) -> None:
    session.commit.give_back(Claims([claim.record for claim in claims]))


class ManualClaims:
    """Manual claims, the writes of such a claim, and the recovery of lost claims."""

    def __init__(self, runtime: Runtime, registry: Registry) -> None:
        self._runtime = runtime
        self._registry = registry
        self.opened = runtime.opened

    @on_app_loop
    @unless_delivered(_give_back)
    async def claim(
        self,
        session: Session,
        queues: Sequence[str] | str = ("default",),
        *,
        tasks: Sequence[str] | None = None,
        limit: int = 1,
        lease: float = MANUAL_LEASE,
        wait: float = 0.0,
    ) -> list[Claim]:
        """Claim up to `limit` jobs manually, under one lease; lost claims are recovered first.

        [] if there are none within `wait` seconds. The claims are released if this process ends.
        """
        process = own_process(session.clock)
        return await self.claim_for(process, queues, tasks=tasks, limit=limit, lease=lease, wait=wait)

    @on_app_loop
    @unless_delivered(_give_back)
    async def claim_for(
        self,
        session: Session,
        process: str,
        queues: Sequence[str] | str,
        *,
        tasks: Sequence[str] | None,
        limit: int,
        lease: float,
        wait: float,
    ) -> list[Claim]:
        """As `claim`, for another process than this one; "": for a process that cannot be identified."""
        names = checked_names(queues, "queue")
        wanted = None if tasks is None else checked_names(tasks, "task")
        limit, lease, patience = checked_limit(limit), checked_lease(lease), checked_seconds(wait, "wait")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience  # real time: a clock that a test has stopped must not stop it
        listener = session.store.listen([f"queue/{name}" for name in names]) if patience else None
        try:
            while True:
                if "sweeps" not in session.store.features:  # else the server does
                    await self.recover()
                    await session.tidy_now_and_then()
                claims = await self._claim_once(session, names, wanted, limit, lease, process=process)
                if claims or listener is None or (left := deadline - loop.time()) <= 0:
                    return claims
                await session.wait(listener, min(left, session.settings.poll))
        finally:
            if listener is not None:
                listener.close()

    async def _claim_once(
        self,
        session: Session,
        queues: tuple[str, ...],
        tasks: tuple[str, ...] | None,
        limit: int,
        lease: float,
        *,
        process: str,
    ) -> list[Claim]:
        """Claim jobs under a holder of this call; paused and expired jobs are settled and left out."""
        holder = new_holder(session, "manual", lease, queues, process=process)
        while True:
            await session.task_pauses.fresh(session.settings.poll)
            found = await confirmed(session, Ask(holder, queues, limit, session.entropy.token(), tasks))
            for record in found.records:
                self._runtime.events.claimed(record)
            starts = [(record, session.may_start(record)) for record in found.records]
            claims = [Claim(self, record, holder) for record, fine in starts if fine]
            refused = [self._refuse(session, record) for record, fine in starts if not fine]
            try:
                answers = await asyncio.gather(*refused, return_exceptions=True)
            except asyncio.CancelledError:
                session.commit.give_back(found)
                raise
            if claims or not found.records:
                return claims  # claims that could not be settled are recovered when this holder's lease expires
            if failed := [error for error in answers if error is not None]:
                raise failed[0]

    async def _refuse(self, session: Session, record: Record) -> None:
        await self.settle(record, await session.refusal(record))

    @on_app_loop
    async def recover(
        self,
        session: Session,
        *,
        holder: str | None = None,
        unstarted: Callable[[Record], bool] = lambda _: False,
        max_age: float = 0.0,
    ) -> int:
        """Settle the claims whose lease has expired (or all of an ended `holder`), to run again; returns how many.

        Claims of a process of this machine that has provably ended are settled at once. `unstarted`: whether
        the job of a claim had not started; it is released without charging an attempt. `max_age`: seconds for
        which the list of holders may be used.
        """
        if holder is None:
            found = [*await session.lost(PAGE_LIMIT, max_age), *await session.abandoned(PAGE_LIMIT, max_age)]
            lost = list({(one.record.id, one.record.fence): one for one in found}.values())
        else:
            lost = await session.store.expired(PAGE_LIMIT, holder)
        if not lost:
            return 0
        ends = [
            self.settlement(
                session,
                one.record,
                Outcome.released() if unstarted(one.record) else Outcome.lost(),
                expected_heartbeat=one.heartbeat,
            )
            for one in lost
        ]
        try:
            written = await asyncio.gather(*(session.commit.settle(end) for end in ends))
        except Exception:
            session.give_way()  # the store can be read but not written, so no heartbeat succeeds
            raise
        settled = [(one.record, end) for one, end, ok in zip(lost, ends, written, strict=True) if ok]
        for record, end in settled:
            self._runtime.events.settled(record, end)
        self._runtime.events.swept([record for record, _ in settled])
        return len(settled)

    def settlement(
        self, session: Session, record: Record, outcome: Outcome, *, expected_heartbeat: int | None = None
    ) -> Settlement:
        """The settlement of a claim, by the rules of the app and the task."""
        rules, entropy = session.rules, session.entropy
        task = self._registry.tasks.get(record.task)
        if task is not None and (task.retry is not None or task.retention is not None):
            rules = msgspec.structs.replace(
                rules,
                backoff=task.retry if isinstance(task.retry, Backoff) else rules.backoff,
                retention=rules.retention if task.retention is None else task.retention,
            )
        return lifecycle.settle(
            record,
            outcome,
            rules,
            nonce=entropy.token(),
            fraction=entropy.fraction(),
            expected_heartbeat=expected_heartbeat,
        )

    @on_app_loop
    async def settle(self, session: Session, record: Record, outcome: Outcome) -> bool:
        """End a claim, fenced; False if it has already ended."""
        end = self.settlement(session, record, outcome)
        written = await session.commit.settle(end)
        if written:
            self._runtime.events.settled(record, end)
        else:
            self._runtime.events.refused(record)
        return written

    @on_app_loop
    async def note(self, session: Session, note: Note) -> bool:
        """Write a note of a running job, fenced."""
        return await session.commit.note(note)

    @on_app_loop
    async def heartbeat(self, session: Session, holder: Holder) -> HeartbeatReply:
        """Renew a holder's lease; returns what it still holds."""
        return (await session.store.heartbeat([holder]))[0]

    @on_app_loop
    async def leave(self, session: Session, holders: Sequence[str]) -> None:
        """Remove these holders, or expire the leases of those that still have claims."""
        await session.store.leave(holders)

    async def encode_result(self, record: Record, result: Any) -> tuple[bytes | None, int]:
        """A result as it is stored, and the maximum size in bytes."""
        limit = (await self.opened()).settings.max_payload
        return self._registry.encode_result(record, result), limit

    @audited("mark_failed")
    @on_app_loop
    async def mark_failed(self, session: Session, id: str, error: str | BaseException) -> None:
        """For a monitor that knows that a run is lost: end its claim as failed, as its worker would have."""
        text = error_text(error)
        record = await session.record(id)
        if record.state != State.RUNNING:
            raise InvalidState(id, record.state, "only a running job can be marked as failed")
        if not await self.settle(record, Outcome.failed(text)):
            raise LeaseLost(id, record.fence)
