"""Why is this job not running? One answer in words, from what the store knows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from .clock import MICROS
from .job import TERMINAL, HolderSeen, Record, State
from .view import moment

if TYPE_CHECKING:
    from .app import Holdfast

MOST_RUNNING = 200
"""Running jobs that are looked at to say since when the workers are busy."""


class Explanation(msgspec.Struct, frozen=True):
    """Where a job stands, the reason in one sentence, and what else may help."""

    id: str
    state: str
    reason: str
    details: tuple[str, ...] = ()


async def explain(app: Holdfast, id: str) -> Explanation:
    """Ask the store, on the app's own loop, and say why."""
    record, store = await app.record(id), app.session.store
    holders, pauses, now = await store.holders(), await store.records("pause"), await store.now()
    serving = [seen for seen in holders if seen.alive and record.queue in seen.holder.queues]
    held = [job for seen in serving for job in seen.jobs][:MOST_RUNNING]
    busy = [one for one in await store.get(held) if one is not None] if record.state == State.QUEUED else []
    return why(record, now, holders, pauses, busy)


def why(
    record: Record, now: int, holders: Sequence[HolderSeen], pauses: Collection[str], busy: Sequence[Record] = ()
) -> Explanation:
    """The same from values alone. `busy`: what the workers of its queue run."""
    state = record.state
    details: list[str] = []
    if record.state in TERMINAL:
        reason = f"it ended at {_time(record.finished_at)}"
        if record.error:
            details.append(record.error)
        if state == State.DEAD:
            details.append(f"`holdfast dlq retry {record.id}` runs it again, from attempt 0")
    elif state == State.RUNNING:
        reason = _held(record, holders)
        if record.cancel:
            details.append("its cancellation was asked for; its worker hears of it at its next heartbeat")
    elif state == State.BLOCKED:
        reason = "it is blocked by other jobs that have not ended"
    elif record.run_at > now:
        wait = f"{_time(record.run_at)} (in {_span((record.run_at - now) / MICROS)})"
        if state == State.FAILED:
            reason = f"it waits for its retry at {wait}, after attempt {record.attempt} of {record.max_attempts or '∞'}"
            details.append(f"the last attempt: {record.error}")
        else:
            reason = f"it is scheduled for {wait}"
        details += _obstacles(record, holders, pauses, busy)
    else:
        found = _obstacles(record, holders, pauses, busy)
        reason = found[0] if found else "it is ready, and a worker should take it within a poll interval"
        details += found[1:]
    return Explanation(record.id, str(state), reason, tuple(details))


def _held(record: Record, holders: Sequence[HolderSeen]) -> str:
    seen = next((one for one in holders if one.holder.id == record.holder), None)
    since = f"since {_time(record.started_at)}"
    if seen is None or not seen.alive:
        return f"worker {record.holder} held it {since}, but its lease has ended; any live worker gives it back soon"
    holder, left = seen.holder, seen.holder.lease - seen.age
    pid = record.pid or holder.pid
    return (
        f"worker {holder.id} on node {holder.node} runs it {since} (pid {pid}); "
        f"its lease holds for another {_span(max(0.0, left))} and is renewed by heartbeats"
    )


def _obstacles(
    record: Record, holders: Sequence[HolderSeen], pauses: Collection[str], busy: Sequence[Record]
) -> list[str]:
    """What keeps a job that is due from being taken, the weightiest first."""
    found: list[str] = []
    queue, task = record.queue, record.task
    if queue in pauses:
        found.append(f"queue {queue!r} is paused; `holdfast resume {queue}` goes on with it")
    workers = [seen for seen in holders if seen.alive and seen.holder.kind == "worker"]
    serving = [seen for seen in workers if queue in seen.holder.queues]
    if not serving:
        found.append(
            f"no live worker serves queue {queue!r} ({len(workers)} serve others)" if workers else "no worker is alive"
        )
        return found
    if ":" not in task and not any(task in seen.holder.tasks for seen in serving):
        hint = "; start one with --shell or without -A" if task == "shell" else ""
        found.append(f"no live worker of queue {queue!r} knows task {task!r}{hint}")
    if all(0 < seen.holder.slots <= len(seen.jobs) for seen in serving):
        slots = sum(seen.holder.slots for seen in serving)
        last = max((one.started_at or 0 for one in busy), default=0)
        since = f" since {_time(last)}" if last else ""
        found.append(f"all {slots} slots of the {len(serving)} workers of queue {queue!r} are busy{since}")
    elif record.suspect:
        found.append("its process died under it, so it waits for a worker that runs nothing else")
    return found


def _time(micros: int | None) -> str:
    return "an unknown time" if micros is None else moment(micros).isoformat(" ", "seconds")


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
