"""Follow-ups: the job that is stored when another one has succeeded, or is dead."""

from __future__ import annotations

import hashlib

import msgspec

from . import internal as extras
from .internal import FollowUp, Internal
from .job import NewJob, Record, State

_SHARED = tuple(name for name in FollowUp.__struct_fields__ if name not in ("payload", *extras.TIMES))
"""The fields that a follow-up and its job share."""


def made_from(job: NewJob) -> FollowUp:
    """The follow-up that stores this job."""
    shared, limits = {name: getattr(job, name) for name in _SHARED}, extras.read(job.extra)
    return FollowUp(
        payload=msgspec.Raw(job.payload), **shared, **{name: getattr(limits, name) for name in extras.TIMES}
    )


def job_of(follow_up: FollowUp, id: str = "", nonce: int = 0, follows: str = "") -> NewJob:
    """The job that a follow-up stores."""
    shared = {name: getattr(follow_up, name) for name in _SHARED}
    extra = extras.write(Internal(**{name: getattr(follow_up, name) for name in extras.TIMES}))
    payload, meta = bytes(follow_up.payload), {"follows": follows}
    return NewJob(id, payload=payload, nonce=nonce, meta=meta, extra=extra, **shared)


def jobs_in(extra: bytes | None) -> list[NewJob]:
    """The jobs that the follow-ups in a job's `extra` store, without their ids: to be checked."""
    if extra is None:
        return []
    found = extras.read(extra)
    return [job_of(each) for each in (found.on_success, found.on_dead) if each is not None]


def recorded(extra: bytes | None, state: str) -> bool:
    """Whether the end of a job in this state must be recorded, because a follow-up has to be stored."""
    return _wanted(extra, state) is not None


def owed(record: Record) -> NewJob | None:
    """The follow-up job of a job that has ended, if it has one: the same for the same end."""
    wanted = _wanted(record.extra, record.state)
    if wanted is None:
        return None
    end = f"{record.id}\n{record.seq}\n{record.fence}".encode()
    digest = hashlib.blake2b(end, digest_size=16).digest()
    return job_of(wanted, digest.hex(), int.from_bytes(digest[:8], "big") >> 2 | 1, record.id)


def _wanted(extra: bytes | None, state: str) -> FollowUp | None:
    if extra is None or state not in (State.SUCCEEDED, State.DEAD):
        return None
    found = extras.read(extra)
    return found.on_success if state == State.SUCCEEDED else found.on_dead
