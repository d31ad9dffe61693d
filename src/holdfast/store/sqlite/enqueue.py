"""ENQUEUE: inserts new jobs; a repeated insert is recognised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core.job import TERMINAL, WAITING, NewJob
from ...core.operations import Inserted
from ..reference.apply import after, first_run_at
from . import limits, sql, transitions
from .rows import first_state, limit_key_columns, new_row
from .step import Mismatch, Step


def insert_all(step: Step, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Insert plain jobs in bulk; jobs with a known key, a maximum depth or a big payload one by one."""
    if not step.bulk:
        return [_insert(step, new) for new in jobs]
    now, ordinary, limited = step.now, True, False
    keyed: list[NewJob] = []
    for new in jobs:
        if new.max_depth is not None or len(new.payload) > sql.INLINE_PAYLOAD:
            return [_insert(step, new) for new in jobs]
        if new.key is not None:
            keyed.append(new)
        if new.delay > 0 or new.run_at is not None or new.nonce or new.tags or new.meta or new.retry is not None:
            ordinary = False
        if new.waiting_for is not None or new.extra is not None:
            ordinary = False
        if new.limit_key is not None:
            limited = True
    if keyed and _some_known(step, keyed):
        return [_insert(step, new) for new in jobs]
    if ordinary and len(jobs) >= sql.MANY and not limited and not keyed and (alike := _same(jobs)):
        written = step.write_rows(sql.INSERT_ALIKE, (now, *alike), [(new.id, new.payload) for new in jobs])
    elif ordinary:
        rows = [
            (now, now, new.id, new.queue, new.task, new.priority, new.payload, new.codec, new.max_attempts, new.timeout,
             new.key)
            for new in jobs
        ]  # fmt: skip
        if limited:
            times = limits.fair_times(step, jobs, [now] * len(jobs))
            rows = [
                (now, at, *row[2:], *limit_key_columns(new.limit_key))
                for at, row, new in zip(times, rows, jobs, strict=True)
            ]
        written = step.write_rows(sql.INSERT_LIMITED if limited else sql.INSERT_NOW, (), rows)
    else:
        times = [first_run_at(new, now) for new in jobs]
        states = [first_state(new, now, at) for new, at in zip(jobs, times, strict=True)]
        times = limits.fair_times(step, jobs, times)
        rows = [new_row(new, now, at, state) for new, at, state in zip(jobs, times, states, strict=True)]
        written = step.connection.executemany(sql.INSERT, rows).rowcount
    if written != len(jobs):
        raise Mismatch
    if keyed:
        step.write_rows(sql.PUT_KEY, (), [(new.key, new.id, new.fingerprint, now) for new in keyed])
    step.notified.update({f"queue/{queue}" for queue in {new.queue for new in jobs}})
    transitions.record(step, ((new.id, first_state(new, now, first_run_at(new, now))) for new in jobs))
    return [Inserted("created", new.id) for new in jobs]


def _same(jobs: Sequence[NewJob]) -> tuple[Any, ...] | None:
    """The values of INSERT_ALIKE that all these jobs share; None if they differ."""
    shared = {(new.queue, new.task, new.priority, new.codec, new.max_attempts, new.timeout) for new in jobs}
    return shared.pop() if len(shared) == 1 else None


def _some_known(step: Step, jobs: Sequence[NewJob]) -> bool:
    """Whether a key of these jobs belongs to another job, or to two of them."""
    keys = {new.key for new in jobs}
    return len(keys) < len(jobs) or step.value(sql.KNOWS_KEY, msgspec.json.encode(keys).decode(), step.now) == 1


def _insert(step: Step, new: NewJob) -> Inserted:
    if new.unique and step.value(sql.NONCE, new.id) == new.nonce:
        return Inserted("created", new.id)  # another job may have its key by now
    if new.key is not None and (known := step.one(sql.KEY, new.key, step.now)) is not None:
        id, fingerprint, made_at = known
        if _is_taken(step, id, made_at, new):
            if id == new.id and (step.value(sql.NONCE, new.id) or 0) == new.nonce:
                return Inserted("created", new.id)
            return Inserted("existing" if fingerprint == new.fingerprint else "conflict", id)
    nonce = step.value(sql.NONCE, new.id)
    if nonce is not None:
        return Inserted("created" if nonce == new.nonce else "exists", new.id)
    if new.max_depth is not None and step.value(sql.DEPTH, new.queue, new.queue) >= new.max_depth:
        return Inserted("full", new.id)
    run_at = first_run_at(new, step.now)
    state = first_state(new, step.now, run_at)
    [run_at] = limits.fair_times(step, [new], [run_at])
    added = step.connection.execute(sql.INSERT, new_row(new, step.now, run_at, state))
    if len(new.payload) > sql.INLINE_PAYLOAD:
        step.connection.execute(sql.INSERT_PAYLOAD, (added.lastrowid, new.payload))
    if new.key is not None:
        step.connection.execute(sql.PUT_KEY[1], (new.key, new.id, new.fingerprint, step.now))
    step.notified.add(f"queue/{new.queue}")
    transitions.record(step, [(new.id, state)])
    return Inserted("created", new.id)


def _is_taken(step: Step, id: str, made_at: int, new: NewJob) -> bool:
    """Whether the job that has the key prevents the new one, by the rule of `unique`."""
    if not new.unique:
        return True
    if new.unique == "window":
        return after(made_at, new.window) > step.now
    state = step.value(sql.STATE, id)
    return state in WAITING if new.unique == "until_start" else state is not None and state not in TERMINAL
