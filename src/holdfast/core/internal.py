"""Internal metadata of a job, which stores keep without decoding it."""

from __future__ import annotations

from typing import Literal

import msgspec

from .clock import MICROS
from .job import LimitKey, Record
from .retry import Backoff

NotRun = Literal["failed_parent", "not_needed"]
"""Why a job of a flow ended without a run: a parent failed or was deleted; or there was nothing to compensate."""


class FollowUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job to store when another one has ended (`follow_ups.py`). The fields are those of `NewJob`."""

    task: str
    queue: str
    payload: msgspec.Raw
    priority: int = 0
    delay: float = 0.0
    max_attempts: int = 5
    timeout: float | None = None
    tags: tuple[str, ...] = ()
    retry: Backoff | None = None
    limit_key: LimitKey | None = None
    expires_at: int | None = None
    expires_in: float | None = None
    deadline_at: int | None = None
    deadline_in: float | None = None
    stall_timeout: float | None = None


class Internal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Internal metadata that most jobs do not have."""

    expires_at: int | None = None
    """The job expires if it has not started by then."""
    expires_in: float | None = None
    """The same, as seconds after its creation by the store's clock."""
    deadline_at: int | None = None
    """The job ends dead unless it has ended otherwise by then."""
    deadline_in: float | None = None
    """The same, as seconds after its creation by the store's clock."""
    stall_timeout: float | None = None
    """Seconds without progress, output or checkpoint after which a run fails."""
    flow: str | None = None
    """The flow that the job belongs to."""
    after: tuple[tuple[int, str], ...] = ()
    """Its parents by their numbers in the flow, with the rule if one is dead: fail, ignore or compensate."""
    after_jobs: tuple[tuple[str, str], ...] = ()
    """Its parents outside of the flow, by their ids, with the same rule."""
    holes: bool = False
    """Its payload has placeholders for results of its parents."""
    tolerated: bool = False
    """The flow may succeed although this job is dead."""
    allow_unfinished: int | None = None
    """It waits until all jobs of its flow that were added before it have ended, except for this many."""
    upto: int = 0
    """This many of those have ended, counted from the first."""
    not_run: NotRun | None = None
    """It was cancelled because of how its parents ended. Written by the change that cancels it, cleared by the change
    that makes it wait again. The end of the flow depends on this, not on the error of the job."""
    on_success: FollowUp | None = None
    """Stored when the job has succeeded."""
    on_dead: FollowUp | None = None
    """Stored when the job is dead."""


TIMES = ("expires_at", "expires_in", "deadline_at", "deadline_in", "stall_timeout")
"""The fields that are times."""
TIME_LIMIT = 2**60
"""Valid range of times, in microseconds or seconds."""
ON_DEAD = frozenset({"fail", "ignore", "compensate"})
_decode = msgspec.json.Decoder(Internal).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = Internal()


def read(data: bytes | None) -> Internal:
    """Decodes a record's `extra`; empty if it cannot be decoded (`damage.py` reports that)."""
    if data is None:
        return _NOTHING
    try:
        return decode(data)
    except ValueError:
        return _NOTHING


def decode(data: bytes) -> Internal:
    """The same; ValueError if it is invalid."""
    try:
        found = _decode(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    for name in TIMES:
        value = getattr(found, name)
        if value is not None and not 0 <= value < TIME_LIMIT:
            raise ValueError(f"{name} is not between 0 and {TIME_LIMIT}")
    if any(number < 0 or on_dead not in ON_DEAD for number, on_dead in found.after):
        raise ValueError("`after` has an invalid job number or an invalid on_dead rule")
    if any(not id or on_dead not in ON_DEAD for id, on_dead in found.after_jobs):
        raise ValueError("`after_jobs` has an empty id or an invalid on_dead rule")
    if found.upto < 0:
        raise ValueError("upto must not be negative")
    if (found.allow_unfinished or 0) < 0:
        raise ValueError("allow_unfinished must not be negative")
    if found.flow == "":
        raise ValueError("flow must not be empty")
    return found


def check(id: str, data: bytes) -> None:
    """ValueError if a job with this id cannot have this `extra`."""
    flow = decode(data).flow
    if flow is None or flow == id:
        return
    number = id.removeprefix(f"{flow}.")
    if number == id or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"the id of a job of flow {flow!r:.200} must be the flow's id, a dot and a number")


def expires_at(record: Record) -> int | None:
    """When the job expires unless it has started, by the store's clock; None: never."""
    found = read(record.extra)
    return found.expires_at if found.expires_in is None else record.created_at + int(found.expires_in * MICROS)


def deadline(record: Record) -> int | None:
    """When the job must have ended, by the store's clock; None: it has no deadline."""
    if record.extra is None:
        return None
    found = read(record.extra)
    return found.deadline_at if found.deadline_in is None else record.created_at + int(found.deadline_in * MICROS)


def is_flow(record: Record) -> bool:
    """Whether it is a flow's own job, which represents the whole flow."""
    return record.extra is not None and read(record.extra).flow == record.id


def flow_of(record: Record) -> str | None:
    """The flow that a job belongs to; None for a flow's own job."""
    flow = read(record.extra).flow
    return None if flow == record.id else flow


def in_flow(record: Record) -> bool:
    """Whether a flow may wait for this job's end. If its `extra` cannot be decoded, its id decides."""
    if record.extra is None:
        return False
    try:
        return decode(record.extra).flow is not None
    except ValueError:
        return "." in record.id


def after_reset(data: bytes | None) -> bytes | None:
    """`extra` of a job that is run again: without an expiry, a deadline, and the reason why it did not run.

    Undecodable data is kept unchanged.
    """
    if data is None:
        return None
    try:
        cleared = dict.fromkeys(("expires_at", "expires_in", "deadline_at", "deadline_in", "not_run"))
        return write(msgspec.structs.replace(decode(data), **cleared))
    except ValueError:
        return data


def added(data: bytes | None, more: Internal) -> bytes | None:
    """`extra` with the fields that `more` sets."""
    if data is None:
        return write(more)
    said = {name: value for name, value in msgspec.structs.asdict(more).items() if value != getattr(_NOTHING, name)}
    return write(msgspec.structs.replace(read(data), **said))


def write(extra: Internal) -> bytes | None:
    """Encodes it for a store; None if nothing is set."""
    return None if extra == _NOTHING else _encode(extra)
