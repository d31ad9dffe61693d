"""Claims for workers in any language: claim jobs by long poll, then extend, complete, fail or release, each fenced.

A server keeps no state of a claim: the claim's token contains what the next request needs, so any server of the same
store can handle it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable

import msgspec

from ..client.claims import Claim
from ..core.errors import InvalidJob, LeaseLost
from ..core.job import Attempt, Record, State
from ..core.lifecycle import ERROR_LIMIT, history, shorten
from ..core.operations import Holder
from ..core.validation import checked_lease, checked_names, checked_text
from ..version import __version__
from ..views import split_holder
from . import limits, shapes
from .call import Answer, Call, ClientGone, json, nothing
from .problems import BUSY, Refused
from .shapes import job_out


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The content of a claim's token: the store's token number, the lease in seconds, and the queues."""

    token: int
    lease: float
    queues: tuple[str, ...]


async def claim(call: Call, body: shapes.NewClaim) -> Answer:
    """Claim jobs; if there are none, wait for up to `wait` seconds."""
    service = call.service
    if body.wait and service.waiting >= limits.STREAMS:
        detail = f"{limits.STREAMS} claims already wait on this server; nothing was claimed, try again later"
        raise Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER)
    service.waiting += 1
    try:
        wait = 0.0 if call.followed else body.wait
        # Not claimed for this server process: clients keep their claims when it restarts.
        work = call.parts.claims.claim_for(
            "", body.queues, tasks=body.types, limit=body.limit, lease=body.lease, wait=wait
        )
        found = await (call.while_wanted(work) if wait else work)
    finally:
        service.waiting -= 1
    if call.left:  # the client disconnected before it got these claims
        await asyncio.gather(*(one.release() for one in found or ()), return_exceptions=True)
        raise ClientGone
    return json(shapes.ClaimsOut([_claim_out(one) for one in found or ()]))


async def extend(call: Call, job: str, body: shapes.Extend) -> Answer:
    """Renew the lease of a claim, and of all claims made in the same call."""
    held, ticket = await _held(call, job, body.fence, body.token)
    await held.extend()
    return json(shapes.Extended(ticket.lease, held.job.cancel_requested))


async def complete(call: Call, job: str, body: shapes.Complete) -> Answer:
    """End a claim as succeeded, and store the result."""

    def same(record: Record, last: Attempt) -> bool:
        kept = call.parts.registry.encode_result(record, body.result)
        return last.outcome == "succeeded" and (record.state != State.SUCCEEDED or record.result == kept)

    return await _end(call, job, body, lambda held: held.complete(body.result), same)


async def fail(call: Call, job: str, body: shapes.Fail) -> Answer:
    """End a claim as failed; the job is retried after its backoff, or is dead."""

    def same(_: Record, last: Attempt) -> bool:
        # After the last attempt, or with `dead`, the job is dead; if cancellation was requested, cancelled. The error
        # distinguishes this end from one with another cause.
        outcomes = ("dead",) if body.dead else ("failed", "dead", "cancelled")
        return last.outcome in outcomes and last.error == shorten(body.error, ERROR_LIMIT)

    return await _end(call, job, body, lambda held: held.fail(body.error, retry_in=body.retry_in, dead=body.dead), same)


async def release(call: Call, job: str, body: shapes.Release) -> Answer:
    """Release the job without using an attempt."""

    def same(_: Record, last: Attempt) -> bool:
        # If cancellation was requested, a release ends the job as cancelled.
        return last.outcome in ("released", "snoozed", "cancelled")

    return await _end(call, job, body, lambda held: held.release(delay=body.delay), same)


async def _end(
    call: Call,
    id: str,
    body: shapes.Complete | shapes.Fail | shapes.Release,
    end: Callable[[Claim], Awaitable[None]],
    same: Callable[[Record, Attempt], bool],
) -> Answer:
    """End a claim. If it already ended with `same`, the first answer was lost and is repeated."""
    try:
        held, _ = await _held(call, id, body.fence, body.token)
        await end(held)
    except LeaseLost:
        record = await call.parts.handles.record(id)
        last = next((line for line in reversed(history(record)) if line.fence == body.fence), None)
        ours = (record.fence, record.token) == (body.fence, _read(body.token).token)
        if not ours or last is None or not same(record, last):
            raise
    return nothing()


async def _held(call: Call, id: str, fence: int, token: str) -> tuple[Claim, Ticket]:
    """The claim of this fence and token; LeaseLost if it has ended."""
    ticket = _read(token)
    record = await call.parts.handles.record(checked_text(id, "id"))
    if record.state != State.RUNNING or (record.fence, record.token) != (fence, ticket.token) or record.holder is None:
        raise LeaseLost(id, fence)
    node, pid = split_holder(record.holder)
    started = record.started_at or 0
    holder = Holder(
        record.holder, ticket.lease, "manual", node or "", pid or 0, ticket.queues, (), 0, __version__, started
    )
    return Claim(call.parts.claims, record, holder), ticket


def _claim_out(claim: Claim) -> shapes.ClaimOut:
    holder = claim.holder
    ticket = msgspec.json.encode(Ticket(claim.token, holder.lease, holder.queues))
    token = base64.urlsafe_b64encode(ticket).rstrip(b"=").decode()
    return shapes.ClaimOut(job_out(claim.job), claim.fence, token, holder.lease)


def _read(token: str) -> Ticket:
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        ticket = msgspec.json.decode(data, type=Ticket)
        checked_lease(ticket.lease)
        checked_names(ticket.queues, "queue")
    except (msgspec.MsgspecError, binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidJob("`token` is not a claim's token: send it as POST /v1/claims returned it") from error
    return ticket
