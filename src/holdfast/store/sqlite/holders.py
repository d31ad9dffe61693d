"""LEASES: they belong to holders, are measured by the machine's boot clock, and end when the machine reboots."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.clock import MICROS
from ...core.limiter import KEPT
from ...core.operations import HeartbeatReply, HeldClaim, Holder, HolderInfo, Lost, Tidied, holder_of
from ..json_columns import to_json
from ..protocol import MINUTE_STATS_KEPT
from . import sql, transitions
from .rows import record, text_of
from .step import Step


def heartbeat(step: Step, holder: Holder) -> HeartbeatReply:
    number = step.value(
        sql.HEARTBEAT,
        holder.id,
        to_json(holder).decode(),
        step.boot,
        step.boot + int(holder.lease * MICROS),
        step.boot_id,
        step.now,
    )
    rows = step.connection.execute(sql.CLAIMS_OF, (holder.id,))
    return HeartbeatReply(
        number, tuple([HeldClaim(id, seq, fence, token, cancel == 1) for id, seq, fence, token, cancel in rows])
    )


def leave(step: Step, holders: Sequence[str]) -> None:
    for holder in holders:
        step.connection.execute(sql.LEAVE, (step.boot, step.boot_id, holder))
        step.connection.execute(sql.FORGET_HOLDER, (holder,))


def expired(step: Step, limit: int, holder: str | None) -> list[Lost]:
    if holder is None:
        rows = step.connection.execute(sql.LOST, (step.boot, step.boot_id, limit))
    else:
        rows = step.connection.execute(sql.LOST_OF, (holder, limit))
    return [Lost(record(row), row[-1]) for row in rows]


def seen(step: Step) -> list[HolderInfo]:
    jobs: dict[str, list[str]] = {}
    for name, id in step.connection.execute(sql.RUNNING_BY_HOLDER):
        jobs.setdefault(name, []).append(id)
    found: list[HolderInfo] = []
    for about, number, renewed_at, expires, boot_id, seen_at, id in step.connection.execute(sql.HOLDERS):
        this_boot = boot_id == step.boot_id
        age = step.boot - renewed_at if this_boot else step.now - seen_at
        alive = this_boot and expires > step.boot
        found.append(
            HolderInfo(holder_of(text_of(id), about), number, max(0, age) / MICROS, alive, tuple(jobs.get(id, ())))
        )
    return found


def anything_to_tidy(step: Step) -> bool:
    oldest_minute = step.now - int(MINUTE_STATS_KEPT * MICROS)
    values = (step.now, step.now, step.boot, step.boot_id, oldest_minute, step.now - KEPT)
    return step.value(sql.ANYTHING_TO_TIDY, *values) == 1


def tidy(step: Step, limit: int) -> Tidied:
    execute = step.connection.execute
    transitions.tidy(step)
    removed = execute(sql.TIDY_JOBS, (step.now, limit)).fetchall()
    for queue, state in removed:
        transitions.keep(step, queue, state, -1)
    transitions.write(step)
    execute(sql.TIDY_LIMITERS, (step.now - KEPT,))
    return Tidied(
        len(removed),
        execute(sql.TIDY_KEYS, (step.now, limit)).rowcount,
        execute(sql.TIDY_HOLDERS, (step.boot, step.boot_id, limit)).rowcount,
    )
