"""Undo of an operator action on one job: pure functions from a record, and its version before the action, to a change.

A change is written only if the job is still as the action left it: the same `seq`, fence and `reset_count`. Undoing a
cancellation raises `reset_count`, and so does every retry: no later action is mistaken for the one that is undone.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .clock import MICROS
from .internal import in_flow
from .job import TERMINAL, WAITING, Record, State
from .lifecycle import Rules
from .operations import Change, Patch

REASONS = {
    "running": "they were running and were asked to stop",
    "flow": "they belong to flows",
    "result": "they had succeeded, and their results were dropped",
    "woken": "they slept or waited for a signal, and were woken",
    "unlisted": "the entry does not list them",
    "started": "they have started since",
    "changed": "they have changed since",
    "due": "they would be due by now",
    "not_found": "they no longer exist",
    "key": "their key belongs to another job now",
    "refused": "you may not change them",
    "resumed": "it was resumed since",
}
"""Why a job, or a pause (`resumed`), is not undone."""


class Version(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job before an action."""

    seq: int
    fence: int
    reset_count: int
    run_at: int
    suspended: bool = False
    """It slept or waited for a signal within its run."""


def version_of(record: Record) -> Version | None:
    """The version of a job that an action changes; None for a job of a flow, which cannot be undone alone."""
    if in_flow(record):
        return None
    suspended = bool(record.history) and record.history[-1].outcome == "suspended"
    return Version(record.seq, record.fence, record.reset_count, record.run_at, suspended)


def excluded(action: str, state: str, version: Version | None) -> str | None:
    """Why a job that was in this state before a `cancel` or `retry` can never be undone; None if it can."""
    if version is None:
        return "flow"
    if state == State.RUNNING:
        return "running"
    if action == "retry" and state == State.SUCCEEDED:
        return "result"
    return "woken" if action == "retry" and state in WAITING and version.suspended else None


def cancel(record: Record, state: str, before: Version) -> Change | str:
    """Makes a cancelled job wait again, with its attempts and due time; or the reason why not.

    A job that waited for anything but its time is queued: the next claim decides whether it has to wait again.
    """
    if record.state != State.CANCELLED or not _same(record, before, before.reset_count):
        return "changed"
    last = record.history[-1] if record.history else None
    failed = last is not None and last.reset_count == before.reset_count
    parts: dict[str, Any] = {"state": state, "reset_count": before.reset_count + 1}
    parts["error"] = last.error if last is not None and failed else None
    if before.suspended:
        parts |= {"state": State.QUEUED, "delay": 0.0}
    elif state == State.BLOCKED:
        parts["state"] = State.QUEUED
    return _change(record, Patch(**parts))


def retry(record: Record, state: str, before: Version, rules: Rules, *, ended_at: int, now: int) -> Change | str:
    """Ends a retried job again, or gives one that waited its former time; or the reason why not.

    `ended_at`: when the action ended, by the store's clock. A job with a later due time was changed again.
    """
    if (record.seq, record.fence) != (before.seq, before.fence):
        return "started" if record.seq == before.seq else "changed"
    if state in TERMINAL:
        if record.state not in WAITING or not _same(record, before, before.reset_count + 1):
            return "changed"
        return _change(record, _ended(record, state, before, rules))
    if record.state != State.QUEUED or record.run_at > ended_at or not _same(record, before, before.reset_count):
        return "changed"
    if before.run_at <= now:
        return "due"
    return _change(record, Patch(state=state, delay=(before.run_at - now) / MICROS))


def _ended(record: Record, state: str, before: Version, rules: Rules) -> Patch:
    """The end that a job had before its retry, as far as its history has it."""
    last = record.history[-1] if record.history else None
    if last is not None and last.reset_count == before.reset_count and last.outcome == state:
        attempt, error = last.number, last.error
    else:
        attempt, error = 0, f"{state} before a retry that was undone"
    keep = None if state == State.DEAD else rules.retention
    return Patch(state=state, attempt=attempt, error=error, keep=keep, key_keep=rules.key_retention)


def _same(record: Record, before: Version, reset_count: int) -> bool:
    return (record.seq, record.fence, record.reset_count) == (before.seq, before.fence, reset_count)


def _change(record: Record, patch: Patch) -> Change:
    seq, reset_count = record.seq, record.reset_count
    return Change(record.id, record.state, record.fence, patch, expected_seq=seq, expected_reset_count=reset_count)
