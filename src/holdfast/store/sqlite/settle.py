"""NOTE and SETTLE: progress and end of a claim, written only under its fence and token."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...core.job import TERMINAL, Record, State
from ...core.operations import Note, Settlement
from ..json_columns import to_json
from ..reference import apply
from . import limits, output, sql, transitions
from .rows import TEXT, record, saved_row
from .step import Mismatch, Step

UNSET = msgspec.UNSET
_SUCCEEDED = State.SUCCEEDED.value


def note(step: Step, new: Note) -> bool:
    row = step.one(sql.CLAIMED, new.id, new.fence, new.token)
    if row is None:
        return False
    if apply.notifies(new):
        step.notified.add(f"note/{new.id}")
    if new.output is not UNSET:
        output.append(step, row[0], new.fence, new.output)
        if new.progress is new.checkpoint is new.pid is new.meta is new.rest is UNSET:
            return True
    kept = record(row)
    if new.rest is not UNSET and kept.limit_key is not None:
        limits.rest(step, kept.limit_key.name, apply.after(step.now, new.rest))
    apply.note(kept, new, step.now)
    save(step, kept)
    return True


def save(step: Step, kept: Record, settled: int | None = None) -> None:
    step.connection.execute(sql.SAVE, saved_row(kept, settled))


def settle_all(step: Step, ends: Sequence[Settlement]) -> list[bool]:
    """Settle consecutive final settlements in one statement each; the others one by one, in the order given."""
    if not step.bulk:
        return [_settle(step, end) for end in ends]
    answers: list[bool] = []
    kept: list[Settlement] = []
    gone: list[Settlement] = []
    for end in ends:
        if end.state not in TERMINAL or end.expected_heartbeat is not None:
            answers += _end_run(step, kept, gone)
            answers.append(_settle(step, end))
        elif end.keep is None or end.keep > 0:
            kept.append(end)
        else:
            gone.append(end)
    return answers + _end_run(step, kept, gone)


def _end_run(step: Step, kept: list[Settlement], gone: list[Settlement]) -> list[bool]:
    """End consecutive claims as final: all of them, or Mismatch."""
    count = len(kept) + len(gone)
    if not count:
        return []
    now, written = step.now, 0
    left = transitions.count_all(step, kept + gone)
    if kept and _all_plain_successes(kept):
        written += step.write_rows(
            sql.SUCCEED,
            (now, apply.expiry(now, kept[0].keep)),
            [(end.attempt, end.result, end.nonce, end.seq, end.id, end.fence, end.token) for end in kept],
        )
    elif kept:
        written += step.connection.executemany(
            sql.END,
            [
                (
                    TEXT[end.state],  # pyright: ignore[reportArgumentType]  # a State and its text hash alike
                    end.attempt,
                    1 if end.quarantined else 0,
                    end.crashes,
                    end.result,
                    end.error,
                    end.traceback,
                    now,
                    apply.expiry(now, end.keep),
                    end.nonce,
                    end.seq,
                    end.id,
                    end.fence,
                    end.token,
                    end.key,
                )
                for end in kept
            ],
        ).rowcount
    if gone:
        written += step.connection.executemany(
            sql.END_AND_REMOVE, [(end.seq, end.id, end.fence, end.token, end.key) for end in gone]
        ).rowcount
    if written != count:
        raise Mismatch
    ends = kept + gone
    keyed = [(apply.after(now, end.key_keep), end.key, end.id) for end in ends if end.key is not None]
    if keyed:
        step.connection.executemany(sql.END_KEY, keyed)
    step.notified.update([f"job/{end.id}" for end in ends])
    transitions.record(step, ((end.id, end.state) for end in ends))
    transitions.ended(step, [end.id for end in ends if end.record_end])
    for queue, freed in left:
        limits.capacity_freed(step, queue, freed)
    kept.clear()
    gone.clear()
    return [True] * count


def _all_plain_successes(ends: list[Settlement]) -> bool:
    """Whether all only succeeded, with the same retention and without a key."""
    keep = ends[0].keep
    for end in ends:
        if end.state != _SUCCEEDED or end.keep != keep or end.key is not None:
            return False
        if end.quarantined or end.crashes or end.error is not None or end.traceback is not None:
            return False
    return True


def _settle(step: Step, end: Settlement) -> bool:
    row = step.one(sql.CLAIMED, end.id, end.fence, end.token)
    if row is None:
        return step.value(sql.SETTLED, end.id) == end.nonce
    kept = record(row)
    if (
        end.expected_heartbeat is not None
        and (step.value(sql.HEARTBEAT_OF, kept.holder) or 0) != end.expected_heartbeat
    ):
        return False
    transitions.count(step, kept, end)
    apply.settle(kept, end, step.now)
    transitions.record(step, [(kept.id, kept.state)])
    put(step, kept, end.key_keep, end.nonce)
    if kept.limit_key is not None:
        limits.capacity_freed(step, kept.queue, to_json([kept.limit_key.name]).decode())
    if end.record_end and kept.state in TERMINAL:
        transitions.ended(step, [kept.id])
    return True


def put(step: Step, kept: Record, key_keep: float, settled: int | None = None) -> None:
    """Write a changed record and its key's expiry; or remove it, if its retention is over."""
    over = kept.state in TERMINAL
    if kept.key is not None:
        step.connection.execute(sql.END_KEY, (apply.after(step.now, key_keep) if over else None, kept.key, kept.id))
    step.notified.add(f"job/{kept.id}" if over else f"queue/{kept.queue}")
    if apply.removable(kept, step.now):
        step.connection.execute(sql.REMOVE, (kept.seq,))
        return
    if over:
        transitions.keep(step, kept.queue, kept.state)
    save(step, kept, settled)
