"""The lifecycle of a job: pure functions from a record to a write. No I/O, no clock, no randomness.

A claim ends by `settle(record, outcome, …)`; an operation becomes a Change by `cancel`, `retry`, `delete` or
`update_meta`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from . import follow_ups
from . import internal as extra
from . import step_log as steps
from .clock import MICROS, moment
from .errors import InvalidState
from .job import HISTORY_LIMIT, TERMINAL, WAITING, Attempt, Record, State, ended_attempt
from .operations import Change, Note, Patch, Settlement
from .retry import Backoff
from .waiting import COMPATIBLE, Waiting

ERROR_LIMIT = 4096
"""Characters of an attempt's error that are kept."""
TRACEBACK_LIMIT = 32_768
"""Characters of a traceback that are kept, from its end."""
UNCHARGED = ("suspended", "snoozed", "released", "paused", "refused")
"""Outcomes of claims that were released unchanged: they use no attempt."""
COMPANY = 2
"""Runs of a quarantined job beside other quarantined jobs before it must run alone."""
DELAY_LIMIT = 1e10
"""Seconds: about 300 years, which every store can add to its clock and show as a date."""
REFUSED_MIN, REFUSED_MAX = 1.0, 60.0
"""Seconds for which a refused job is delayed; in between, for as long as it has been refused."""
REFUSED_SINCE = "holdfast.refused"
"""The name in a job's meta of the time and fence of its first refusal; invalid once a claim ended otherwise."""
anew = partial(Patch, attempt=0, quarantined=False, crashes=0, error=None, traceback=None, progress=None)
"""A patch after which a job starts again as if it had not run, with the other fields given."""


class Rules(msgspec.Struct, frozen=True, gc=False):
    """The settings that determine how the end of a claim is written."""

    backoff: Backoff
    max_crashes: int
    retention: float
    """Seconds for which succeeded and cancelled jobs are kept; dead jobs are kept until they are purged."""
    key_retention: float
    refusal_timeout: float = 3600.0
    """Seconds after its first refusal at which a job that is refused again is dead."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How a run ended. Made by the constructors below."""

    kind: str
    result: bytes | None = None
    error: str | None = None
    traceback: str | None = None
    delay: float | None = None
    """Seconds until the next run, if the run chose them."""
    waiting_for: Waiting | None = None
    """What it waits for, besides its due time."""
    alone: bool = False
    """No other job ran in the process that crashed."""
    error_type: str | None = None
    """The class of the exception that ended the run; not stored."""

    @property
    def error_kind(self) -> str | None:
        """For traces and metrics, which must not read the text: the class of the exception, else the kind."""
        return None if self.error is None else self.error_type or self.kind

    @staticmethod
    def succeeded(result: bytes | None) -> Outcome:
        return Outcome("succeeded", result)

    @staticmethod
    def failed(
        error: str, traceback: str | None = None, delay: float | None = None, *, error_type: str | None = None
    ) -> Outcome:
        """This attempt failed; the next one follows after the backoff, or after `delay` seconds."""
        return Outcome("failed", None, shorten(error, ERROR_LIMIT), _tail(traceback), delay, error_type=error_type)

    @staticmethod
    def dead(error: str, traceback: str | None = None, *, error_type: str | None = None) -> Outcome:
        """The attempt failed, and no other attempt follows."""
        return Outcome("dead", None, shorten(error, ERROR_LIMIT), _tail(traceback), error_type=error_type)

    @staticmethod
    def snoozed(delay: float) -> Outcome:
        """Run again after `delay` seconds, uncharged."""
        return Outcome("snoozed", delay=delay)

    @staticmethod
    def suspended(waiting_for: Waiting, delay: float | None = None) -> Outcome:
        """Suspended until a wait ends, or for at most `delay` seconds; then it runs again, uncharged."""
        return Outcome("suspended", delay=delay, waiting_for=waiting_for)

    @staticmethod
    def expired(error: str) -> Outcome:
        """It did not start before its expiry."""
        return Outcome("expired", error=shorten(error, ERROR_LIMIT))

    @staticmethod
    def paused(waiting_for: Waiting) -> Outcome:
        """Deferred unchanged before it ran, until its pause is lifted."""
        return Outcome("paused", waiting_for=waiting_for)

    @staticmethod
    def refused(error: str) -> Outcome:
        """The worker does not know its task or arguments: released uncharged and delayed, or dead after a time."""
        return Outcome("refused", error=shorten(error, ERROR_LIMIT))

    @staticmethod
    def released() -> Outcome:
        """Released unfinished and uncharged, to its previous position."""
        return Outcome("released")

    @staticmethod
    def cancelled() -> Outcome:
        """It was stopped because its cancellation was requested."""
        return Outcome("cancelled", error="cancelled while running")

    @staticmethod
    def lost(error: str | None = None, *, alone: bool = False) -> Outcome:
        """Its holder's lease expired, or its process crashed, without a report."""
        return Outcome("lost", error=error, alone=alone)


def settle(
    record: Record,
    outcome: Outcome,
    rules: Rules,
    *,
    nonce: int,
    fraction: float,
    expected_heartbeat: int | None = None,
) -> Settlement:
    """The settlement of claim `record` with this outcome. `fraction` in [0, 1) places a retry within its jitter."""
    kind = outcome.kind
    in_flow = extra.in_flow(record)
    retention = None if in_flow else rules.retention  # other jobs may need it until the flow has ended
    if kind == "succeeded":
        recorded = in_flow or (record.extra is not None and follow_ups.recorded(record.extra, State.SUCCEEDED))
        return Settlement(
            record.id, record.seq, record.fence, record.token, nonce, State.SUCCEEDED, "succeeded", record.attempt,
            result=outcome.result, keep=None if recorded else rules.retention, key=record.key,
            key_keep=rules.key_retention, expected_heartbeat=expected_heartbeat, record_end=recorded,
            task=record.task,
        )  # fmt: skip
    state: str = State.QUEUED
    attempt, quarantined, crashes = record.attempt, False, 0
    delay, error, traceback, keep = outcome.delay, outcome.error, outcome.traceback, retention
    waiting_for = outcome.waiting_for
    if kind == "cancelled" or (kind == "lost" and record.cancel):
        state, error = State.CANCELLED, error or "cancelled while running; its worker stopped without a result"
        kind = "cancelled"
    elif kind == "dead":
        state = State.DEAD
    elif kind == "failed":
        if spent(record):
            state, kind = State.DEAD, "dead"
        else:
            delay = delay if delay is not None else (record.retry or rules.backoff).delay(record.attempt, fraction)
            state = State.FAILED
            if (left := time_left(record)) is not None and delay >= left:
                state, kind, delay = State.DEAD, "dead", None
                error = f"{error} (not retried: the next attempt would start after the deadline of the job)"
    elif kind == "suspended":
        state, attempt = State.BLOCKED if delay is None else State.SCHEDULED, attempt - 1
        error, traceback = record.error, record.traceback
    elif kind == "snoozed":
        state, attempt, error, traceback = State.SCHEDULED, attempt - 1, record.error, record.traceback
    elif kind == "expired":
        state, attempt = State.CANCELLED, attempt - 1
    elif kind == "refused":
        refused = refused_for(record)
        if refused >= rules.refusal_timeout and _refusals(record) >= refusals_required(rules.refusal_timeout):
            state, kind = State.DEAD, "dead"
            error = f"{error} (workers refused it for {refused:.0f} s)"
        else:
            state, attempt, waiting_for = State.SCHEDULED, attempt - 1, COMPATIBLE
            delay = min(max(refused, REFUSED_MIN), REFUSED_MAX)
            quarantined, crashes = record.quarantined, record.crashes
    elif kind in ("released", "paused"):
        state = State.QUEUED if kind == "released" else State.BLOCKED
        attempt, error, traceback = attempt - 1, record.error, record.traceback
        quarantined, crashes = record.quarantined, record.crashes
    else:
        quarantined, crashes = True, _crashes(record, alone=outcome.alone)
        error = error or f"lost: worker {record.holder} stopped without reporting a result"
        if crashes >= rules.max_crashes:
            state, kind = State.DEAD, "dead"
            error = (
                f"quarantined: its process crashed {crashes} times in a row while no other job ran in it;"
                " find the cause before you retry the job"
            )
        elif spent(record):
            state, kind = State.DEAD, "dead"
            alone = f", {crashes} times in a row while no other job ran" if crashes > 0 else ""
            error += f"{alone}, and all {record.max_attempts} attempts are used"
    if kind in ("suspended", "snoozed") and (left := time_left(record)) is not None:
        state, delay = State.SCHEDULED, left if delay is None else min(delay, left)  # due then, to end dead
    if delay is not None:
        delay = min(max(0.0, delay), DELAY_LIMIT)  # in this order, so that NaN becomes 0
    return Settlement(
        record.id, record.seq, record.fence, record.token, nonce, state, kind, attempt,
        delay=delay, quarantined=quarantined, crashes=crashes, error=error, traceback=traceback,
        keep=None if state == State.DEAD else keep, cancelled_keep=retention, key=record.key,
        key_keep=rules.key_retention, expected_heartbeat=expected_heartbeat, waiting_for=waiting_for,
        record_end=in_flow or follow_ups.recorded(record.extra, state), task=record.task,
    )  # fmt: skip


def refused_since(record: Record) -> int | None:
    """When the refusals of a job began, by the store's clock; None if its last claim was not refused."""
    found = record.meta.get(REFUSED_SINCE)
    match found:
        case {"at": int(at), "fence": int(fence)}:
            refused = all(line.outcome == "refused" for line in record.history if line.fence >= fence)
            return at if refused else None
        case _:
            return None


def refused_for(record: Record) -> float:
    """Seconds from the first refusal of a claimed job to this claim; 0 if it was not refused before."""
    since, now = refused_since(record), record.started_at
    return 0.0 if since is None or now is None else max(0, now - since) / MICROS


def refusals_required(timeout: float) -> float:
    """How often a job must have been refused before the timeout applies: about half as often as it allows.

    So a clock that is wrong, of another writer of a bucket or after a step, does not end the job early.
    """
    return min(HISTORY_LIMIT, timeout / REFUSED_MAX / 2)


def _refusals(record: Record) -> int:
    """Consecutive refusals in the history since the note of the first."""
    if refused_since(record) is None:
        return 0
    fence = record.meta[REFUSED_SINCE]["fence"]
    return sum(line.fence >= fence for line in record.history)


def refusals_forgotten(record: Record) -> dict[str, Any]:
    """The meta after which a job with another task or other arguments is refused for the first time."""
    return {REFUSED_SINCE: None} if record.meta.get(REFUSED_SINCE) is not None else {}


def note_refusal(record: Record) -> Note | None:
    """The note of a claim that is refused, if it is the first in a row."""
    if refused_since(record) is not None:
        return None
    about = {REFUSED_SINCE: {"at": record.started_at, "fence": record.fence}}
    return Note(record.id, record.seq, record.fence, record.token, meta=about)


def _crashes(record: Record, *, alone: bool) -> int:
    """The crash count of a job after a crash. Only crashes while no other job ran are counted above 0.

    A quarantined job may crash COMPANY times beside other quarantined jobs, but its last attempt always runs alone.
    """
    crashes = -COMPANY if not record.quarantined else max(record.crashes, 0) + 1 if alone else record.crashes + 1
    return max(crashes, 0) if 0 < record.max_attempts <= record.attempt + 1 else crashes


def start_limit(record: Record) -> int | None:
    """The time before which a job must start. None: no limit, or it has already started once and saved or waited."""
    if record.extra is None or record.checkpoint is not None:
        return None
    return None if any(line.outcome == "suspended" for line in record.history) else extra.expires_at(record)


def too_late(record: Record) -> Outcome | None:
    """How the claim of an expired job ends; None if it has not expired."""
    limit = start_limit(record)
    if limit is None or record.started_at is None or record.started_at < limit:
        return None
    before = moment(limit).isoformat(" ", "milliseconds")
    return Outcome.expired(f"expired: the job did not start before {before}")


def time_left(record: Record) -> float | None:
    """Seconds from this claim to the job's deadline, by the store's clock; None: it has none."""
    limit = None if record.extra is None else extra.deadline(record)
    return None if limit is None or record.started_at is None else (limit - record.started_at) / MICROS


def overdue(record: Record) -> Outcome | None:
    """How the claim of a job past its deadline ends; None if it may run."""
    left = time_left(record)
    return None if left is None or left > 0 else Outcome.dead(deadline_error(record))


def deadline_error(record: Record) -> str:
    """The error of a job that has not ended before its deadline."""
    when = moment(extra.deadline(record) or 0).isoformat(" ", "milliseconds")
    return f"deadline exceeded: the job had not ended by {when}"


def spent(record: Record) -> bool:
    """Whether this claim used the job's last charged attempt."""
    return record.max_attempts > 0 and record.attempt >= record.max_attempts


def cancel(record: Record, rules: Rules) -> Change | None:
    """Ends a waiting job; requests the stop of a running one. None if the job has ended."""
    if record.state in TERMINAL or record.cancel:
        return None
    if record.state == State.RUNNING:
        patch = Patch(cancel=True)
    else:
        in_flow = extra.in_flow(record)
        reason = record.waiting_for
        suspended = record.checkpoint is not None or (reason is not None and reason.kind == "signal")
        patch = Patch(
            state=State.CANCELLED,
            # A suspended job has its attempt back.
            error="cancelled while it waited" if record.attempt or suspended else "cancelled before it ran",
            traceback=None,
            keep=None if in_flow else rules.retention,
            key_keep=rules.key_retention,
            record_end=in_flow,
        )
    return Change(record.id, record.state, record.fence, patch)


def retry(record: Record, delay: float = 0.0) -> Change:
    """Resets the attempts of an ended job, keeping its history; makes a waiting job due now, or after `delay` seconds.

    A succeeded job repeats all of its steps; any other resumes after the steps that it had finished.
    """
    state = State.SCHEDULED if delay > 0 else State.QUEUED
    if record.state == State.RUNNING:
        raise InvalidState(record.id, record.state, "cancel it or wait until it ends, then retry it")
    if record.state == State.BLOCKED:
        what = f"it waits for {record.waiting_for or 'other jobs'} and cannot be retried"
        raise InvalidState(record.id, record.state, f"{what}; `holdfast explain {record.id}` shows more")
    if record.state in WAITING:
        return Change(record.id, record.state, record.fence, Patch(state=state, delay=delay))
    patch = anew(
        state=state,
        delay=delay,
        reset_count=record.reset_count + 1,
        cancel=False,
        result=None,
        checkpoint=steps.after_reset(record.checkpoint, without_steps=record.state == State.SUCCEEDED),
        history=history(record)[-HISTORY_LIMIT:],
        extra=extra.after_reset(record.extra),  # without its expiry
    )
    return Change(record.id, record.state, record.fence, patch)


def delete(record: Record) -> Change:
    """Deletes the job; a running one must be cancelled first."""
    if record.state == State.RUNNING:
        raise InvalidState(record.id, record.state, "cancel it or wait until it ends, then delete it")
    return Change(record.id, record.state, record.fence, None)


def move(record: Record, task: str) -> Change | None:
    """Gives a waiting or dead job another task. None for other states and for flows.

    A job that was refused, or waits for the end of its former task's pause, is queued; a claim applies the new pause.
    """
    if (record.state not in WAITING and record.state != State.DEAD) or record.task == task or extra.is_flow(record):
        return None
    patch = Patch(task=task)
    if record.waiting_for == COMPATIBLE:
        patch = Patch(task=task, state=State.QUEUED, delay=0.0)
    elif record.waiting_for is not None and record.waiting_for.kind == "pause":
        patch = Patch(task=task, state=State.QUEUED)
    if forgotten := refusals_forgotten(record):
        patch = msgspec.structs.replace(patch, meta=forgotten)
    return Change(record.id, record.state, record.fence, patch, expected_task=record.task)


def edit(record: Record, wanted: Patch, delay: float | None) -> Change:
    """Gives a waiting job other arguments, another queue or priority, or (`delay`, in seconds from now) another time.

    With other arguments, steps that it has finished are repeated, a job that was refused is due now, and one that waits
    for the end of a pause is queued: a claim decides whether the pause covers these arguments.
    """
    if record.state not in WAITING:
        wanted_state = "only a waiting job can be edited; clone it to run it again with edits"
        if record.state == State.RUNNING:
            wanted_state = "it has started, so it was not edited; clone it, or cancel it first"
        raise InvalidState(record.id, record.state, wanted_state)
    parts = msgspec.structs.asdict(wanted)
    if wanted.payload is not msgspec.UNSET:
        parts["checkpoint"] = None
        if forgotten := refusals_forgotten(record):
            parts["meta"] = forgotten
        if delay is None and record.waiting_for == COMPATIBLE:
            delay = 0.0
        elif delay is None and record.waiting_for is not None and record.waiting_for.kind == "pause":
            parts["state"] = State.QUEUED
    if delay is not None:
        reason = record.waiting_for
        if record.state == State.BLOCKED and reason is not None and reason.kind != "limit":
            raise InvalidState(
                record.id, record.state, f"it waits for {reason}, so its time was not changed; nothing was edited"
            )
        later = State.FAILED if record.state == State.FAILED else State.SCHEDULED
        parts |= {"state": later if delay > 0 else State.QUEUED, "delay": delay}
    return Change(record.id, record.state, record.fence, Patch(**parts), expected_task=record.task)


def update_meta(record: Record, meta: dict[str, Any]) -> Change:
    """Merges into the meta of a job that has not ended."""
    if record.state in TERMINAL:
        raise InvalidState(record.id, record.state, "its meta can only be updated before it ends")
    return Change(record.id, record.state, record.fence, Patch(meta=meta))


def history(record: Record) -> tuple[Attempt, ...]:
    """All ended attempts. The last attempt of an ended job is in the record itself."""
    if record.state not in TERMINAL or record.started_at is None or record.finished_at is None:
        return record.history
    return (*record.history, ended_attempt(record, record.finished_at, record.state, record.error))


def number_of(line: Attempt) -> int:
    """The number that an attempt had while it ran. Its entry counts charged attempts, not one given back."""
    return line.number + (line.outcome in UNCHARGED)


def failures(record: Record) -> int:
    """Attempts since the last reset that failed or were lost.

    Each charged attempt after which the job waits is one of them, and history entries are numbered: so the count does
    not depend on the length of the history.
    """
    last = record.history[-1] if record.history else None
    before = last.number if last is not None and last.reset_count == record.reset_count else 0
    return before + (record.state == State.DEAD and record.started_at is not None)


def updated_at(record: Record) -> int:
    """When its state last changed or it was last written, by the store's clock.

    Becoming due, and waiting for a limit, do not count.
    """
    last = record.finished_at or record.started_at
    if last is None:
        last = record.history[-1].ended_at if record.history else record.created_at
    return max(last, record.changed_at or 0)


def shorten(text: str, limit: int) -> str:
    """The beginning of a text, with a mark if it was cut."""
    return storable(text if len(text) <= limit else text[: limit - 1] + "…")


def _tail(text: str | None) -> str | None:
    # The end of a traceback names the error; the beginning is the least useful part.
    if text is None:
        return None
    return storable(text if len(text) <= TRACEBACK_LIMIT else "…" + text[1 - TRACEBACK_LIMIT :])


def storable(text: str) -> str:
    """The text with every character that no store keeps replaced."""
    # An exception's text may contain what no store keeps: half a surrogate pair (of a file name, say), or NUL.
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def replaces(change: Change) -> bool:
    """Whether a change can be that of an enqueue with `replace=`: a waiting job gets other arguments, and waits."""
    patch = change.patch
    if patch is None or change.expected_state not in WAITING:
        return False
    return isinstance(patch.payload, bytes) and patch.state in (State.SCHEDULED, State.QUEUED)
