"""CLAIM: look without writing, then promote what is due and take the first in order, in one step."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...clock import MICROS
from ...job import Ask, Claims, Record
from ..protocol import PROMOTE_LIMIT
from . import sql, told
from .rows import claimed, record, to_json
from .step import Step


def look(step: Step, ask: Ask) -> Claims | None:
    """The answer to an ask that finds nothing; None where there is something to write. Writes nothing itself."""
    waiting = False
    for queue in _open(step, ask):
        due = step.value(sql.NEXT_DUE, queue)
        if due is not None and due <= step.now:
            return None
        if ask.limit > 0:
            suspect = _first(step, 1, queue, ask)
            if (suspect is not None and not ask.busy) or _first(step, 0, queue, ask) is not None:
                return None
            waiting = waiting or suspect is not None
    return Claims([], waiting, _due_in(step, ask))


def claim(step: Step, ask: Ask) -> Claims:
    """Take up to `ask.limit` jobs, queue by queue."""
    taken: list[Record] = []
    waiting = False
    for queue in _open(step, ask):
        step.connection.execute(sql.PROMOTE, (queue, step.now, PROMOTE_LIMIT))
        picked, passed = _pick(step, queue, ask, ask.limit - len(taken), some=bool(taken))
        taken += picked
        waiting = waiting or passed
        if len(taken) >= ask.limit or (taken and taken[-1].suspect):
            break
    if not taken:
        return Claims([], waiting, _due_in(step, ask))
    told.move(step, ((record.id, record.state) for record in taken))
    lease = int(ask.holder.lease * MICROS)
    step.connection.execute(
        sql.RENEW_FOR_CLAIM,
        (
            ask.holder.id,
            to_json(ask.holder).decode(),
            step.boot,
            step.boot + lease,
            step.boot_id,
            step.now,
            lease // 2,
        ),
    )
    return Claims(taken, waiting)


def _open(step: Step, ask: Ask) -> Iterable[str]:
    paused = {name for (name,) in step.connection.execute(sql.PAUSED)}
    return [queue for queue in dict.fromkeys(ask.queues) if queue not in paused]


def _due_in(step: Step, ask: Ask) -> float | None:
    soon = [due for queue in _open(step, ask) if (due := step.value(sql.NEXT_DUE, queue)) is not None]
    return max(0.0, (min(soon) - step.now) / MICROS) if soon else None


def _tasks(ask: Ask) -> tuple[str, ...]:
    return () if ask.tasks is None else (msgspec.json.encode(ask.tasks).decode(),)


def _first(step: Step, suspect: int, queue: str, ask: Ask) -> tuple[int, int, int] | None:
    return step.one(sql.FIRST[suspect, ask.tasks is not None], queue, *_tasks(ask))


def _pick(step: Step, queue: str, ask: Ask, limit: int, *, some: bool) -> tuple[list[Record], bool]:
    """The jobs taken from one queue, and whether a suspect whose turn it was had to be passed over."""
    if limit <= 0:
        return [], False
    suspect = _first(step, 1, queue, ask)
    if suspect is None:
        return _take(step, 0, queue, ask, limit), False
    if not ask.busy and not some:
        sound = _first(step, 0, queue, ask)
        if sound is None or suspect < sound:
            return _take(step, 1, queue, ask, 1), False
    taken = _take(step, 0, queue, ask, limit)
    return taken, len(taken) < limit or suspect < _place(taken[-1])


def _take(step: Step, suspect: int, queue: str, ask: Ask, limit: int) -> list[Record]:
    """Read the first ready jobs, then claim them; nobody can come between."""
    which = (suspect, ask.tasks is not None)
    rows = step.connection.execute(sql.SELECT_READY[which], (queue, *_tasks(ask), limit)).fetchall()
    if rows:
        values = (ask.holder.id, ask.token, step.now, queue, *_tasks(ask), limit)
        step.connection.execute(sql.TAKE[which], values)
    return [claimed(row, queue, ask, step.now, suspect == 1) or record(step.one(sql.BY_SEQ, row[0])) for row in rows]


def _place(taken: Record) -> tuple[int, int, int]:
    return taken.priority, taken.run_at, taken.seq
