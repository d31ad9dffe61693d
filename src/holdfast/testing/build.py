"""Short constructors for the values of the store protocol: jobs, asks, outcomes and changes."""

from __future__ import annotations

from hashlib import blake2b
from itertools import count
from typing import Any

import msgspec

from ..core.clock import fresh_entropy
from ..core.job import NewJob, Record, State
from ..core.operations import Ask, Change, Holder, Lost, Note, Patch, Settlement

_numbers = count(1)
_entropy = fresh_entropy()

HOUR = 3600.0
"""The default retention of jobs that end in a test, in seconds: longer than any test."""


def new_job(id: str | None = None, *, task: str = "work", payload: bytes = b"{}", **options: Any) -> NewJob:
    """A job of task `work` in queue `default`, with a new id; its fingerprint is of task and payload."""
    options.setdefault("queue", "default")
    if options.get("key") is not None:
        options.setdefault("fingerprint", blake2b(task.encode() + b"\n" + payload, digest_size=16).hexdigest())
    return NewJob(id=id or f"job-{next(_numbers)}", task=task, payload=payload, **options)


def holder(name: str = "ann", lease: float = 30.0, **options: Any) -> Holder:
    """A holder of claims; `name` is the whole id."""
    return Holder(id=name, lease=lease, **options)


def ask(by: str | Holder = "ann", *queues: str, limit: int = 1, **options: Any) -> Ask:
    """A claim request for these queues (`default` if none is given), with a new token."""
    options.setdefault("token", _entropy.token())
    return Ask(holder=holder(by) if isinstance(by, str) else by, queues=queues or ("default",), limit=limit, **options)


# -- how a claim ends


def ending(claim: Record, state: State, outcome: str | None = None, **options: Any) -> Settlement:
    """A settlement of this claim, with a retention of an hour if the job ends; used by the functions below."""
    defaults: dict[str, Any] = {
        "nonce": _entropy.token(),
        "attempt": claim.attempt,
        "keep": HOUR,
        "cancelled_keep": HOUR,
        "key": claim.key,
        "fence": claim.fence,
        "token": claim.token,
        "task": claim.task,
    }
    return Settlement(id=claim.id, seq=claim.seq, state=state, outcome=outcome or state, **defaults | options)


def succeeded(claim: Record, result: bytes | None = b"null", **options: Any) -> Settlement:
    return ending(claim, State.SUCCEEDED, result=result, **options)


def failed(claim: Record, delay: float = 0.0, error: str = "Boom: it broke", **options: Any) -> Settlement:
    """The attempt failed; another is due after `delay` seconds."""
    return ending(claim, State.FAILED, delay=delay, error=error, **options)


def dead(claim: Record, error: str = "Boom: it broke", **options: Any) -> Settlement:
    return ending(claim, State.DEAD, error=error, **options)


def cancelled(claim: Record, **options: Any) -> Settlement:
    return ending(claim, State.CANCELLED, **options)


def released(claim: Record, **options: Any) -> Settlement:
    """Released: uncharged, to its previous place."""
    return ending(claim, State.QUEUED, "released", **{"attempt": claim.attempt - 1} | options)


def snoozed(claim: Record, delay: float, **options: Any) -> Settlement:
    """Snoozed: uncharged, due after `delay` seconds."""
    return ending(claim, State.SCHEDULED, "snoozed", **{"attempt": claim.attempt - 1, "delay": delay} | options)


def swept(lost: Lost, **options: Any) -> Settlement:
    """The settlement of a sweep: the job becomes quarantined and queued, if its holder has sent no heartbeat since."""
    defaults: dict[str, Any] = {
        "expected_heartbeat": lost.heartbeat,
        "quarantined": True,
        "crashes": 1,
        "error": "lease lost",
    }
    return ending(lost.record, State.QUEUED, "lost", **defaults | options)


def says(claim: Record, **fields: Any) -> Note:
    """A note under this claim; other `fence` or `token` values forge one. A checkpoint gets the next number."""
    fence, token = fields.pop("fence", claim.fence), fields.pop("token", claim.token)
    if "checkpoint" in fields:
        fields.setdefault("saves", claim.saves + 1)
    return Note(id=claim.id, seq=claim.seq, fence=fence, token=token, **fields)


# -- an operator's changes


def change(seen: Record, **patch: Any) -> Change:
    """Set these fields, if the job is still as it was seen."""
    return Change(seen.id, seen.state, seen.fence, Patch(**patch))


def cancellation(seen: Record, **patch: Any) -> Change:
    """Cancels a waiting job now, or requests the cancellation of a running one."""
    if seen.state == State.RUNNING:
        return change(seen, cancel=True, **patch)
    return change(seen, **{"state": State.CANCELLED, "keep": HOUR} | patch)


def retrial(seen: Record, **patch: Any) -> Change:
    """A manual retry of an ended job: due now, attempts from 0."""
    fields: dict[str, Any] = {"state": State.QUEUED, "delay": 0.0, "attempt": 0, "reset_count": seen.reset_count + 1}
    return change(seen, **fields | {"quarantined": False, "crashes": 0, "result": None, "error": None} | patch)


def deletion(seen: Record) -> Change:
    return Change(seen.id, seen.state, seen.fence, None)


def as_dict(record: Record, *without: str) -> dict[str, Any]:
    """A record's fields by name, except `without`."""
    return {name: value for name, value in msgspec.structs.asdict(record).items() if name not in without}
