"""Claims made by hand: the level below tasks, for people who consume jobs themselves."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..core import lifecycle
from ..core.errors import LeaseLost, PayloadTooLarge, StoreUnavailable
from ..core.job import Record
from ..core.operations import Ask, Beat, Claims, Holder, Note
from ..core.validation import checked_pid, checked_seconds, error_text
from ..version import __version__
from ..views import Job, job_seen
from .heartbeat import Heart

if TYPE_CHECKING:
    from ..app import Holdfast

CONFIRMATIONS = 3
"""Heartbeats after a claim that was answered late: a line that is late with all of them cannot keep a lease."""


class Claim:
    """One job, held by you under a lease until you settle it. Every way to end it is fenced: LeaseLost if it ended."""

    def __init__(self, app: Holdfast, record: Record, holder: Holder) -> None:
        self._app = app
        self._record = record
        self._ended = False
        self.holder = holder
        """Under whose lease it is held."""

    def __repr__(self) -> str:
        return f"<Claim {self._record.id!r} fence={self._record.fence}>"

    @property
    def job(self) -> Job:
        """The job as it was when it was claimed."""
        return job_seen(self._record)

    @property
    def record(self) -> Record:
        """The job as the store keeps it."""
        return self._record

    @property
    def payload(self) -> bytes:
        """The payload as it was stored."""
        return self._record.payload

    @property
    def fence(self) -> int:
        """Rises with every claim of this job."""
        return self._record.fence

    @property
    def token(self) -> int:
        """The random number of this claim, which a store compares beside the fence."""
        return self._record.token

    async def extend(self) -> None:
        """Renew the lease, for every claim that was made in the same call."""
        if not self._held(await self._app.beat(self.holder)):
            raise LeaseLost(self._record.id, self._record.fence)

    async def started(self, pid: int) -> None:
        """Record the process that works on the job."""
        record = self._record
        if not await self._app.note(Note(record.id, record.seq, record.fence, record.token, pid=checked_pid(pid))):
            raise LeaseLost(record.id, record.fence)

    async def complete(self, result: Any = None) -> None:
        """The work is done; the result is kept as JSON, or by the codec of the task where this app has it."""
        limit = (await self._app.opened()).settings.max_payload
        data = self._app.registry.encode_result(self._record, result)
        if data is not None and len(data) > limit:
            raise PayloadTooLarge(f"a result of {len(data)} bytes is over max_payload ({limit}); the claim still holds")
        await self._end(lifecycle.Outcome.succeeded(data))

    async def fail(self, error: str | BaseException, *, retry_in: float | None = None, dead: bool = False) -> None:
        """This attempt failed; the job is retried after its back-off, or `retry_in` seconds, or not at all (`dead`)."""
        text, delay = error_text(error), None if retry_in is None else checked_seconds(retry_in, "retry_in")
        await self._end(lifecycle.Outcome.dead(text) if dead else lifecycle.Outcome.failed(text, delay=delay))

    async def release(self, *, delay: float | None = None) -> None:
        """Give the job back uncharged, at once or after `delay` seconds."""
        later = None if delay is None else lifecycle.Outcome.snoozed(checked_seconds(delay, "delay"))
        await self._end(later or lifecycle.Outcome.released())

    async def cancel(self) -> None:
        """End the job as cancelled."""
        await self._end(lifecycle.Outcome.cancelled())

    async def _end(self, outcome: lifecycle.Outcome) -> None:
        self._ended = True  # from here on, not to be held any more is no loss
        try:
            written = await self._app.settle(self._record, outcome)
        except BaseException:
            self._ended = False
            raise
        if not written:
            raise LeaseLost(self._record.id, self._record.fence)

    def _held(self, beat: Beat) -> bool:
        return bool(_still_held([self._record], beat))

    async def heart(self, after: Callable[[frozenset[Any], Beat], bool] = lambda _, __: True) -> Heart:
        """A heart for this claim, not yet started."""
        session = await self._app.opened()
        return Heart(session.store.sibling(), self.holder, frozenset, after, session.give_way, outages=session.outages)

    @asynccontextmanager
    async def kept_alive(self) -> AsyncGenerator[Claim]:
        """Keep the lease while the block runs, from a thread of its own; a lost lease cancels the block (LeaseLost)."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        lost = over = False

        def stop() -> None:
            nonlocal lost
            if not (lost or over or self._ended) and task is not None:
                lost = True
                task.cancel()

        def after(_: frozenset[Any], beat: Beat) -> bool:
            if not self._held(beat) and not loop.is_closed():
                loop.call_soon_threadsafe(stop)
            return not loop.is_closed()

        heart = await self.heart(after)
        heart.start()
        try:
            yield self
        except asyncio.CancelledError:
            if lost and task is not None and task.uncancel() == 0:
                raise LeaseLost(self._record.id, self._record.fence) from None
            raise
        finally:
            over = True
            await heart.stopped()


async def confirmed(app: Holdfast, ask: Ask) -> Claims:
    """Claim jobs. An answer that took half a lease or longer is confirmed by a heartbeat before anybody starts them.

    Their lease may have ended on the way: whatever is not held any more is left out.
    """
    session, holder, asked = app.session, ask.holder, app.clock.monotonic()
    claims = await session.commit.claim(ask)
    try:
        for _ in range(CONFIRMATIONS):
            if not claims.records or (now := app.clock.monotonic()) - asked < holder.lease / 2:
                return claims
            asked = now
            [beat] = await session.store.beat([holder])
            claims.records = _still_held(claims.records, beat)
    except (Exception, asyncio.CancelledError):
        session.commit.give_back(claims)
        raise
    session.commit.give_back(claims)
    late = f"{CONFIRMATIONS} answers in a row took longer than half of a lease of {holder.lease:g} s"
    raise StoreUnavailable(f"{late}; the claimed jobs were released: use a longer lease, or look at the network")


def _still_held(records: list[Record], beat: Beat) -> list[Record]:
    held = {(one.id, one.fence, one.token) for one in beat.held}
    return [record for record in records if (record.id, record.fence, record.token) in held]


async def claim_by_hand(
    app: Holdfast, queues: tuple[str, ...], tasks: tuple[str, ...] | None, limit: int, lease: float, *, process: str
) -> list[Claim]:
    """Claim jobs under a holder of this call's own; whatever is paused or expired is settled, and not among them."""
    holder, session = new_holder(app, "hand", lease, queues, process=process), app.session
    while True:
        await session.holds.fresh(session.settings.poll)
        found = await confirmed(app, Ask(holder, queues, limit, app.entropy.token(), tasks))
        for record in found.records:
            app.events.claimed(record)
        starts = [(record, session.may_start(record)) for record in found.records]
        claims = [Claim(app, record, holder) for record, fine in starts if fine]
        refused = [_refuse(app, record) for record, fine in starts if not fine]
        try:
            failed = [error for error in await asyncio.gather(*refused, return_exceptions=True) if error is not None]
        except asyncio.CancelledError:
            session.commit.give_back(found)
            raise
        if claims or not found.records:
            return claims  # whatever could not be refused is found lost when this holder's lease ends
        if failed:
            raise failed[0]


async def _refuse(app: Holdfast, record: Record) -> None:
    await app.settle(record, await app.session.refusal(record))


def new_holder(
    app: Holdfast,
    kind: str,
    lease: float,
    queues: tuple[str, ...],
    *,
    tasks: tuple[str, ...] = (),
    slots: int = 0,
    process: str = "",
) -> Holder:
    """A holder that no other can be mistaken for."""
    node, pid = socket.gethostname(), os.getpid()
    name = f"{node}:{pid}:{app.entropy.token():x}"
    return Holder(name, lease, kind, node, pid, queues, tasks, slots, __version__, app.clock.now(), process)
