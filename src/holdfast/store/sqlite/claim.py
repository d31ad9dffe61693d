"""CLAIM: check without writing; then release deferred jobs, promote due jobs and take the first, in one step."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...core.clock import MICROS
from ...core.job import Record
from ...core.operations import Ask, Claims
from ..json_columns import to_json
from ..protocol import LARGE, PROMOTE_LIMIT
from ..reference.ready_queues import Picking, cohort
from . import sql, transitions
from .limits import LimitKeys
from .rows import RUNNING, Row, claimed, integer, is_plain, record
from .step import Step


def look(step: Step, ask: Ask) -> Claims | None:
    """The answer to an ask that finds no jobs; None if there is something to write. Writes nothing itself."""
    opening, waiting = step.value(sql.NEXT_OPENING), False
    if opening is not None and opening <= step.now:
        return None
    for queue in _open(step, ask):
        due = step.value(sql.NEXT_DUE, queue)
        if due is not None and due <= step.now:
            return None
        if ask.limit > 0:
            quarantined = _first(step, 1, queue, ask)
            if (quarantined is not None and not ask.busy) or _first(step, 0, queue, ask) is not None:
                return None
            waiting = waiting or quarantined is not None
    return Claims([], waiting, _due_in(step, ask))


def claim(step: Step, ask: Ask) -> Claims:
    """Take up to `ask.limit` jobs, queue by queue."""
    picking, limit_keys = Picking(ask, step.now), LimitKeys(step)
    limit_keys.reopen()
    for queue in _open(step, ask):
        step.connection.execute(sql.PROMOTE, (queue, step.now, PROMOTE_LIMIT))
        _pick(step, queue, picking, limit_keys)
        if picking.over:
            break
    limit_keys.close(picking.chosen)
    if not picking.chosen:
        return Claims([], picking.quarantined_waiting, _due_in(step, ask) if picking.spare else 0.0)
    transitions.record(step, ((record.id, record.state) for record in picking.chosen))
    lease = int(ask.holder.lease * MICROS)
    step.connection.execute(
        sql.RENEW_FOR_CLAIM,
        (ask.holder.id, to_json(ask.holder).decode(), step.boot, step.boot + lease, step.boot_id, step.now, lease // 2),
    )
    return Claims(picking.chosen, picking.quarantined_waiting)


def _open(step: Step, ask: Ask) -> Iterable[str]:
    paused = {name for (name,) in step.connection.execute(sql.PAUSED)}
    return [queue for queue in dict.fromkeys(ask.queues) if queue not in paused]


def _due_in(step: Step, ask: Ask) -> float | None:
    times = [step.value(sql.NEXT_OPENING), *(step.value(sql.NEXT_DUE, queue) for queue in _open(step, ask))]
    soon = [when for when in times if when is not None]
    return max(0.0, (min(soon) - step.now) / MICROS) if soon else None


def _tasks(ask: Ask) -> tuple[str, ...]:
    return () if ask.tasks is None else (msgspec.json.encode(ask.tasks).decode(),)


def _first(step: Step, quarantined: int, queue: str, ask: Ask) -> tuple[int, ...] | None:
    return step.one(sql.FIRST[quarantined, ask.tasks is not None], queue, *_tasks(ask))


def _pick(step: Step, queue: str, picking: Picking, limit_keys: LimitKeys) -> None:
    """Take jobs from one queue, and store whether a quarantined job that came first had to be skipped."""
    ask, room = picking.ask, picking.ask.limit - len(picking.chosen)
    while not picking.over:
        quarantined = _first(step, 1, queue, ask)
        alone = not ask.busy and not picking.chosen
        if quarantined is not None and alone:
            sound = _first(step, 0, queue, ask)
            if sound is None or quarantined < sound:
                _take_quarantined(step, queue, picking, limit_keys, crashes=quarantined[3], sound=sound)
                continue
        taken = _take(step, queue, picking, limit_keys, room)
        if taken or quarantined is None or not alone:
            late = quarantined is not None and (len(taken) < room or quarantined < _place(taken[-1]))
            picking.quarantined_waiting = picking.quarantined_waiting or late
            return


def _take_quarantined(
    step: Step, queue: str, picking: Picking, limit_keys: LimitKeys, *, crashes: int, sound: tuple[int, ...] | None
) -> None:
    """Claim quarantined jobs that may run together, until another kind of job comes first or a limit is reached."""
    limit = cohort(crashes, picking.ask.limit)
    while len(picking.chosen) < limit and _take(step, queue, picking, limit_keys, 1, crashes=crashes, before=sound):
        pass
    alone = picking.lone_quarantined
    if alone is not None and crashes < 0:
        alone.crashes = 0
        step.connection.execute(sql.TAKEN_ALONE, (alone.seq,))


def _take(
    step: Step,
    queue: str,
    picking: Picking,
    limit_keys: LimitKeys,
    limit: int,
    *,
    crashes: int | None = None,
    before: tuple[int, ...] | None = None,
) -> list[Record]:
    """Read the first ready jobs, and claim the ones whose limits allow it, in one transaction.

    With `crashes`, read one quarantined job with that count of crashes, which comes `before` a place.
    """
    ask, quarantined, some = picking.ask, crashes is not None, picking.ask.tasks is not None
    given = () if crashes is None else (crashes,)
    taken: list[Record] = []
    while len(taken) < limit and picking.spare > 0:
        wanted = limit - len(taken)
        rows = step.connection.execute(
            sql.SELECT_READY[quarantined, some], (queue, *_tasks(ask), *given, wanted)
        ).fetchall()
        if before is not None and rows and picking.chosen and _place_of(rows[0]) >= before:
            break
        whole = _whole(step, [row[0] for row in rows if not is_plain(row)], ask)
        page = [whole[row[0]] if row[0] in whole else claimed(row, queue, ask, step.now, quarantined) for row in rows]
        if any(record.limit_key is not None for record in page):
            page = limit_keys.let_start(page, picking)
        by = (ask.holder.id, ask.token, step.now)
        if whole or quarantined or len(page) < len(rows):
            step.connection.execute(sql.TAKE_THESE, (*by, to_json([record.seq for record in page]).decode()))
        elif page:
            step.connection.execute(sql.TAKE[some], (*by, queue, *_tasks(ask), wanted))
        taken += page
        if quarantined or len(rows) < wanted:
            break
    picking.chosen += taken
    return taken


def _whole(step: Step, seqs: list[int], ask: Ask) -> dict[int, Record]:
    """The claimed records of jobs that SELECT_READY does not describe fully, by `seq`."""
    if not seqs:
        return {}
    found = [record(row) for row in step.connection.execute(sql.BY_SEQS, (to_json(seqs).decode(),)).fetchall()]
    for one in found:
        if one.damage is not None:
            one.attempt, one.fence = min(one.attempt, LARGE - 1), min(one.fence, LARGE - 1)
            step.connection.execute(sql.MEND, (one.id, one.attempt, one.fence, one.seq))
        one.state, one.holder, one.token, one.started_at = RUNNING, ask.holder.id, ask.token, step.now
        one.attempt += 1
        one.fence += 1
        one.pid = one.waiting_for = None
    return {one.seq: one for one in found}


def _place_of(row: Row) -> tuple[int, ...]:
    """The sort key of a row of `sql.SELECT_READY`."""
    return integer(row[3]), integer(row[4]), integer(row[0])


def _place(taken: Record) -> tuple[int, int, int]:
    return taken.priority, taken.run_at, taken.seq
