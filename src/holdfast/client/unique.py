"""Unique jobs: how a waiting job gets the arguments and the due time of a later call.

Unique, throttled and debounced jobs use the same mechanism: a key, and the store's answer which job has it
(`NewJob.unique`). Replacing adds a guarded change of that job; if the job has changed, the insert is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ..core import internal as extra
from ..core import lifecycle
from ..core.clock import MICROS
from ..core.errors import InvalidJob, OutcomeUnknown
from ..core.job import TERMINAL, WAITING, LimitKey, NewJob, Record, State
from ..core.operations import Change, Inserted
from .session import Session

REPLACED = "replaced"
"""The result of a NewJob that replaced the job with its key."""


async def insert_or_replace(
    session: Session, insert: Callable[[NewJob], Awaitable[Inserted]], job: NewJob, max_delay: float | None
) -> Inserted:
    """Store a job; or, if the job with its key still waits, replace its arguments and due time.

    `max_delay`: seconds from the creation of that job after which it is due, however often it is replaced.
    """
    while True:
        answer = await insert(job)
        if answer.outcome != "existing":
            return answer
        [found] = await session.store.get([answer.id])
        if found is None or found.state not in WAITING:
            continue  # claimed, ended or removed since: its key is free
        _check_limit_key(found, job)
        by_the_clock = max_delay is not None or job.run_at is not None or job.extra is not None
        now = await session.store.now() if by_the_clock else 0
        try:
            if (await session.commit.change([replacing(found, job, now, max_delay)]))[0]:
                return Inserted(REPLACED, found.id)
        except OutcomeUnknown as error:
            message = f"job {found.id!r} may have been replaced; read the job before you repeat the call: {error}"
            raise OutcomeUnknown(message, (found.id,), retry_safe=False) from error


async def rivals(session: Session, records: Sequence[Record]) -> dict[str, str]:
    """Those of the given ended jobs whose keys now belong to unfinished jobs, with the ids of the latter."""
    keyed = [(record.id, record.key) for record in records if record.key is not None and record.state in TERMINAL]
    if not keyed:
        return {}
    owners = await session.store.key_owners([key for _, key in keyed])
    return {id: owner for (id, _), owner in zip(keyed, owners, strict=True) if owner is not None}


def _check_limit_key(found: Record, job: NewJob) -> None:
    """A waiting job cannot change its limit key, and must not run under another one."""
    here, there = _name(found.limit_key), _name(job.limit_key)
    if here != there:
        raise InvalidJob(
            f"job {found.id!r} with key {job.key!r} was not replaced: it has {here}, but the new call has "
            f"{there}. Make the value of the limit's key a part of key=, or cancel the job first"
        )


def _name(limit_key: LimitKey | None) -> str:
    return "no limit key" if limit_key is None else f"limit key {limit_key.name!r}"


def replacing(found: Record, job: NewJob, now: int, max_delay: float | None) -> Change:
    """The change that replaces the arguments and due time of a waiting job."""
    delay = job.delay if job.run_at is None else max(0.0, (job.run_at - now) / MICROS)
    if max_delay is not None:
        delay = max(0.0, min(delay, (found.created_at - now) / MICROS + max_delay))
    wanted = extra.read(job.extra)
    # From this call on, not from the first one; never less, whatever clocks say.
    age = max(0.0, (now - found.created_at) / MICROS)
    for name in ("expires_in", "deadline_in"):
        if (seconds := getattr(wanted, name)) is not None:
            wanted = msgspec.structs.replace(wanted, **{name: seconds + age})
    kept = extra.read(found.extra)
    wanted = msgspec.structs.replace(wanted, on_success=kept.on_success, on_dead=kept.on_dead)
    patch = lifecycle.anew(
        state=State.SCHEDULED if delay > 0 else State.QUEUED,
        delay=delay,
        payload=job.payload,
        fingerprint=job.fingerprint,
        extra=extra.write(wanted),
        meta=lifecycle.refusals_forgotten(found) | job.meta,
        reset_count=found.reset_count + 1 if found.attempt else found.reset_count,
        checkpoint=None,
    )
    return Change(found.id, found.state, found.fence, patch)
