"""One job for many calls: how a job that still waits is given the arguments and the time of a later call.

Unique, throttled and debounced jobs are one thing: a key, and the store's answer to which job has it (`NewJob.once`).
To replace is that, and then a guarded change of the job that has the key; whoever finds that it has moved asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from . import extra
from .clock import MICROS
from .job import WAITING, Change, Inserted, NewJob, Patch, Record, State
from .session import Session

REPLACED = "replaced"
"""What became of a NewJob that the job of its key took in."""


async def insert_or_replace(
    session: Session, insert: Callable[[NewJob], Awaitable[Inserted]], job: NewJob, put_off: float | None
) -> Inserted:
    """Store a job; or, where the job of its key still waits, have that one do what this was to do.

    `put_off`: seconds from that one's creation, after which it is due however often it is replaced.
    """
    while True:
        answer = await insert(job)
        if answer.outcome != "existing":
            return answer
        [found] = await session.store.get([answer.id])
        if found is None or found.state not in WAITING:
            continue  # claimed, ended or removed since: its key is free for another
        by_the_clock = put_off is not None or job.run_at is not None or job.extra is not None
        now = await session.store.now() if by_the_clock else 0
        if (await session.commit.change([replacing(found, job, now, put_off)]))[0]:
            return Inserted(REPLACED, found.id)


def replacing(found: Record, job: NewJob, now: int, put_off: float | None) -> Change:
    """The change that has a waiting job do what another was to do, from its beginning."""
    delay = job.delay if job.run_at is None else max(0.0, (job.run_at - now) / MICROS)
    if put_off is not None:
        delay = max(0.0, min(delay, (found.created_at - now) / MICROS + put_off))
    wanted = extra.read(job.extra)
    if wanted.expires_in is not None:  # from this call on, not from the first one
        wanted = msgspec.structs.replace(wanted, expires_in=wanted.expires_in + (now - found.created_at) / MICROS)
    patch = Patch(
        state=State.SCHEDULED if delay > 0 else State.QUEUED,
        delay=delay,
        payload=job.payload,
        fingerprint=job.fingerprint,
        extra=extra.write(wanted),
        meta=job.meta,
        attempt=0,
        life=found.life + 1 if found.attempt else found.life,
        suspect=False,
        deaths=0,
        error=None,
        traceback=None,
        progress=None,
        checkpoint=None,
    )
    return Change(found.id, found.state, found.fence, patch)
