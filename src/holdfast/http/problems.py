"""Errors as RFC 9457 problem documents: one table from what happened to what a client is told."""

from __future__ import annotations

import re

import msgspec

from ..core import errors
from ..core.errors import HoldfastError
from ..core.validation import KEYWORD
from . import limits

MADE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.\d+)*", re.IGNORECASE)
"""An id that was not chosen by its user: a UUID; behind a flow's own, a dot and the number of its job."""
PREFIX = "urn:holdfast:problem:"
CONTENT_TYPE = b"application/problem+json"


class Kind(msgspec.Struct, frozen=True):
    """One problem type: its name never changes, so that programs can go by it."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """The URI in the document."""
        return PREFIX + self.name


BAD_REQUEST = Kind("bad-request", 400, "The request is malformed")
UNAUTHORIZED = Kind("unauthorized", 401, "A token is needed")
FORBIDDEN = Kind("forbidden", 403, "The token does not allow this")
WRONG_ORIGIN = Kind("wrong-origin", 403, "Pages of another site may not call this server")
SHELL_REFUSED = Kind("shell-refused", 403, "This shell job is not allowed over HTTP")
TASK_REFUSED = Kind("task-refused", 403, "Jobs of this task are not allowed over HTTP")
NOT_FOUND = Kind("not-found", 404, "There is nothing here")
JOB_NOT_FOUND = Kind("job-not-found", 404, "There is no such job")
SCHEDULE_NOT_FOUND = Kind("schedule-not-found", 404, "There is no such schedule")
NOT_SET = Kind("not-set", 404, "This setting is not set in the store")
METHOD_NOT_ALLOWED = Kind("method-not-allowed", 405, "This method is not for this path")
TOO_SLOW = Kind("too-slow", 408, "The request did not arrive in time")
JOB_EXISTS = Kind("job-exists", 409, "The id is taken")
NOT_PAUSED = Kind("not-paused", 409, "Nothing of this name is paused")
LEASE_LOST = Kind("lease-lost", 409, "The claim has ended")
INVALID_STATE = Kind("invalid-state", 409, "The job's state does not allow this")
TOO_LARGE = Kind("too-large", 413, "The body or payload is too large")
WRONG_TYPE = Kind("wrong-media-type", 415, "The body must be application/json")
WRONG_HOST = Kind("wrong-host", 421, "This server is not called by that name")
INVALID = Kind("invalid", 422, "The request is not valid")
KEY_CONFLICT = Kind("key-conflict", 422, "The key stands for another job")
QUEUE_FULL = Kind("queue-full", 429, "The queue is full")
INTERNAL = Kind("internal", 500, "Something broke in the server")
STORE_UNAVAILABLE = Kind("store-unavailable", 503, "The store cannot be reached")
OUTCOME_UNKNOWN = Kind("outcome-unknown", 503, "The store may or may not have taken the write")
BUSY = Kind("busy", 503, "The server has too much to do")

KINDS: dict[type[HoldfastError], Kind] = {
    errors.InvalidJob: INVALID,
    errors.PayloadTooLarge: TOO_LARGE,
    errors.JobNotFound: JOB_NOT_FOUND,
    errors.ScheduleNotFound: SCHEDULE_NOT_FOUND,
    errors.JobExists: JOB_EXISTS,
    errors.KeyConflict: KEY_CONFLICT,
    errors.QueueFull: QUEUE_FULL,
    errors.LeaseLost: LEASE_LOST,
    errors.InvalidState: INVALID_STATE,
    errors.UnknownTask: INVALID,
    errors.ConfigError: INVALID,
    errors.StoreUnavailable: STORE_UNAVAILABLE,
    errors.OutcomeUnknown: OUTCOME_UNKNOWN,
    HoldfastError: INTERNAL,
}
"""What each error is to a client; the nearest class counts."""


class Problem(msgspec.Struct, omit_defaults=True):
    """A problem document. `type` is for programs, `detail` for people."""

    type: str
    title: str
    status: int
    detail: str
    job_id: str | None = None
    """The job that it is about."""
    retry_safe: bool = False
    """The same request may be made again, later, without doing anything twice."""


class Refused(Exception):
    """A request that ends here, and what its client is told."""

    def __init__(
        self, kind: Kind, detail: str, *, job_id: str | None = None, retry_safe: bool = False, **headers: str
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.problem = Problem(kind.type, kind.title, kind.status, detail, job_id, retry_safe)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def refused(error: HoldfastError) -> Refused:
    """What a client is told of an error of ours."""
    kind = next(KINDS[step] for step in type(error).__mro__ if step in KINDS)
    if isinstance(error, errors.JobNotFound) and MADE_ID.fullmatch(error.job_id) is None:
        detail = f"{error}, and this is not an id as Holdfast makes them: it may be cut short, or mistyped"
        return Refused(INVALID, detail, job_id=error.job_id)
    later = {"retry_after": limits.RETRY_AFTER} if kind.status in (429, 503) else {}
    detail = KEYWORD.sub(r"\1", str(error)) if kind is not INTERNAL else "see the server's log"
    return Refused(kind, detail, job_id=getattr(error, "job_id", None), retry_safe=error.retry_safe, **later)
