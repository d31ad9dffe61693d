"""Explains why a job is not running, in one sentence, from the data in the store."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

import msgspec

from ..core import internal as extra
from ..core import step_log as steps
from ..core.clock import MICROS
from ..core.damage import damage_of
from ..core.flow_rules import cancelling
from ..core.job import SHELL_TASK, TERMINAL, LimitKey, Record, State
from ..core.lifecycle import refused_since, start_limit
from ..core.operations import HolderInfo, Where
from ..core.waiting import COMPATIBLE, Waiting
from ..views import moment
from .pauses import KIND as PAUSES
from .pauses import Pause, read
from .session import Session

MAX_RUNNING = 200
"""Running jobs that are read to find since when the workers are busy, or which jobs of a limit key run."""
MAX_REFUSED = 100
"""Refused jobs that are read to name those of a flow."""
MAX_NAMED = 5
"""Steps, running jobs and refused jobs that are named."""


class Explanation(msgspec.Struct, frozen=True):
    """The state of a job, the reason in one sentence, and further details."""

    id: str
    state: str
    reason: str
    details: tuple[str, ...] = ()


async def explain(session: Session, id: str) -> Explanation:
    """Read the store and explain the state of a job."""
    record, store = await session.record(id), session.store
    holders, records, now = await store.holders(), await store.records(["pause", PAUSES]), await store.now()
    serving = [seen for seen in holders if seen.alive and record.queue in seen.holder.queues]
    held = [job for seen in serving for job in seen.jobs][:MAX_RUNNING]
    busy = [one for one in await store.get(held) if one is not None] if record.state == State.QUEUED else []
    paused = [pause for pause in read(records[PAUSES]) if pause.task == record.task]
    if record.waiting_for is not None and record.waiting_for.kind == "limit":
        running = (await store.find(Where(states=(State.RUNNING,)), None, MAX_RUNNING)).records
        busy = [one for one in running if one.limit_key is not None and one.limit_key.name == record.waiting_for.name]
    timeout = session.settings.refusal_timeout
    found = why(record, now, holders, records["pause"], busy, paused=paused, refusal_timeout=timeout)
    if record.state == State.BLOCKED and (refused := await _refused_before(session, record)):
        return msgspec.structs.replace(found, details=(*found.details, *map(_name_refused, refused)))
    return found


async def _refused_before(session: Session, record: Record) -> list[Record]:
    """Of the newest refused jobs, those of a flow, or that which a job of a flow waits for; not more than are named."""
    found = await session.store.find(Where(waiting_for=COMPATIBLE), None, MAX_REFUSED)
    if extra.is_flow(record):
        flow = extra.read(record.extra).flow
        return [one for one in found.records if extra.read(one.extra).flow == flow][:MAX_NAMED]
    waited_for = record.waiting_for is not None and record.waiting_for.kind == "dependency" and record.waiting_for.name
    return [one for one in found.records if one.id == waited_for]


def _name_refused(record: Record) -> str:
    return f"workers refuse job {record.id} of task {record.task!r}: {record.error}"


def why(
    record: Record,
    now: int,
    holders: Sequence[HolderInfo],
    pauses: Collection[str],
    busy: Sequence[Record] = (),
    *,
    paused: Sequence[Pause] = (),
    refusal_timeout: float = 0.0,
) -> Explanation:
    """The same from values. `busy`: what the workers of its queue run, or the running jobs of its limit key if it waits
    for that; `paused`: the pauses of its task.
    """
    state = record.state
    details: list[str] = []
    for name, value in damage_of(record).items():
        details.append(f"it is damaged and cannot run: the stored value of {name} cannot be decoded: {value!r:.200}")
    if record.state in TERMINAL:
        reason = f"it ended at {_time(record.finished_at)}"
        if record.error:
            details.append(record.error)
        if state == State.DEAD and not damage_of(record):
            details.append(
                f"`holdfast retry {record.id}` resumes the flow at the jobs that failed"
                if extra.is_flow(record)
                else f"`holdfast dlq retry {record.id}` runs it again, from attempt 0"
            )
    elif state == State.RUNNING:
        reason = _held(record, holders)
        if record.cancel:
            details.append("its cancellation was requested; its worker gets the request by its next heartbeat")
    elif record.limit_key is not None and record.waiting_for == Waiting("limit", record.limit_key.name):
        reason, details = _waits_for_limit_key(record.limit_key, busy)
        details += _obstacles(record, holders, pauses, (), paused)
    elif (resting := _resting(record, now)) is not None:
        reason = resting
    elif record.waiting_for == COMPATIBLE:
        reason, details = _refused(record, now, refusal_timeout)
        details += _obstacles(record, holders, pauses, busy, paused)
    elif state == State.BLOCKED:
        reason = _blocked(record, paused)
        if extra.is_flow(record) and cancelling(record.meta):
            details.append("it is being cancelled: waiting jobs are cancelled, running jobs are asked to stop")
    elif record.run_at > now and state != State.QUEUED:  # a job in the fair order is ready whatever its place
        wait = f"{_time(record.run_at)} (in {_span((record.run_at - now) / MICROS)})"
        if state == State.FAILED:
            reason = f"it waits for its retry at {wait}, after attempt {record.attempt} of {record.max_attempts or '∞'}"
            details.append(f"the last attempt: {record.error}")
        else:
            reason = f"it is scheduled for {wait}"
        details += _obstacles(record, holders, pauses, busy, paused)
    else:
        found = _obstacles(record, holders, pauses, busy, paused)
        reason = found[0] if found else "it is ready, and a worker should take it within a poll interval"
        details += found[1:]
    if state not in TERMINAL and (done := [step for step in steps.read(record.checkpoint).steps if step.done(now)]):
        names = ", ".join("slept" if step.kind == "sleep" else step.name for step in done[-MAX_NAMED:])
        more = "… " if len(done) > MAX_NAMED else ""
        details.append(f"{len(done)} step{' is' if len(done) == 1 else 's are'} done: {more}{names}")
    limit = None if state in TERMINAL or record.started_at is not None else start_limit(record)
    if limit is not None:
        details.append(
            f"it expires if it has not started before {_time(limit)}"
            if limit > now
            else f"it expired at {_time(limit)}, and is cancelled when it is next claimed"
        )
    if state not in TERMINAL and (end := extra.deadline(record)) is not None:
        passed = f"its deadline passed at {_time(end)}, and it is dead when it is next claimed"
        details.append(f"it is dead if it has not ended before its deadline at {_time(end)}" if end > now else passed)
    return Explanation(record.id, str(state), reason, tuple(details))


def _refused(record: Record, now: int, timeout: float) -> tuple[str, list[str]]:
    """Why workers refused a job, when it is offered to them again, and until when."""
    since = refused_since(record)
    again = f"it is offered to all workers again in {_span(max(0, record.run_at - now) / MICROS)}"
    if since is not None:
        again += f", and dead if it is still refused at {_time(since + int(timeout * MICROS))}"
    began = "" if since is None else f" since {_time(since)}"
    return f"workers refuse it{began}, because they do not know its task or arguments: {record.error}", [again]


def _resting(record: Record, now: int) -> str | None:
    """What a suspended job waits for; None if it is not suspended."""
    memory, waiting_for = steps.read(record.checkpoint), record.waiting_for
    if waiting_for is not None and waiting_for.kind == "signal":
        signal = waiting_for.name
        step = memory.find("signal", signal)
        until = "" if step is None or step.until is None else f", at most until {_time(step.until)}"
        return f"it waits for signal {signal!r}{until}; `holdfast signal {shlex.quote(signal)}` wakes it"
    slept = [step.until for step in memory.steps if step.kind == "sleep" and step.until and step.until > now]
    if record.state != State.SCHEDULED or not slept:
        return None
    return f"it sleeps until {_time(slept[0])} (in {_span((slept[0] - now) / MICROS)})"


def _blocked(record: Record, paused: Sequence[Pause]) -> str:
    pause = next((one for one in paused if one.waiting_for == record.waiting_for), None)
    if pause is not None:
        return _paused(pause)
    if record.waiting_for is not None and record.waiting_for.kind == "pause":
        was = f"it was deferred while its task was paused ({record.waiting_for.name})"
        return f"{was}, and was not released; resume the task again"
    return _waits_for_flow(record)


def _waits_for_flow(record: Record) -> str:
    """What a blocked job waits for: other jobs of its flow, or its start."""
    waiting_for, flow = record.waiting_for, extra.read(record.extra).flow
    if waiting_for is not None and waiting_for.kind == "dependency":
        return f"it waits for job {waiting_for.name} to end, which comes before it in flow {flow}"
    if waiting_for is not None and waiting_for.kind == "flow_start":
        return f"it waits for flow {flow} to start; a worker starts it once all of its jobs are stored"
    if waiting_for is not None and waiting_for.kind == "unknown":
        return f"it waits for {waiting_for}"
    if extra.is_flow(record):
        return f"it waits for its jobs to end; `holdfast flow show {flow}` shows their progress"
    if flow is not None:
        return f"it waits for the other jobs of flow {flow} to end; `holdfast flow show {flow}` shows their progress"
    return f"it waits for {waiting_for or 'other jobs to end'}"


def _waits_for_limit_key(limit_key: LimitKey, running: Sequence[Record]) -> tuple[str, list[str]]:
    """What is known of a limit key that defers a job. Only claims know when the next one may start."""
    bounds: list[str] = []
    if limit_key.concurrency:
        bounds.append(f"with {len(running)} of {limit_key.concurrency} jobs running")
    if limit_key.interval:
        at_once = f", {limit_key.burst} at once after an idle time" if limit_key.burst > 1 else ""
        bounds.append(f"with one start every {limit_key.interval / MICROS:g} s{at_once}")
    details: list[str] = []
    if running:
        ids = ", ".join(one.id for one in running[:MAX_NAMED])
        details.append(f"running under its limit key: {ids}{', …' if len(running) > MAX_NAMED else ''}")
    if not limit_key.concurrency or len(running) < limit_key.concurrency:
        rate = " when its rate allows it," if limit_key.interval else ""
        details.append(f"it starts{rate} at the next claim, unless a task has reported a rate limit that still applies")
    return ", ".join([f"it waits for its limit key {limit_key.name!r}", " and ".join(bounds)]).removesuffix(
        ", "
    ), details


def _paused(pause: Pause) -> str:
    over = " and was resumed just now" if pause.resumed_at else f"; `holdfast resume {pause.flags}` resumes it"
    return f"task {pause.name} is paused since {_time(pause.since)}{over}"


def _held(record: Record, holders: Sequence[HolderInfo]) -> str:
    seen = next((one for one in holders if one.holder.id == record.holder), None)
    since = f"since {_time(record.started_at)}"
    if seen is None or not seen.alive:
        return f"worker {record.holder} ran it {since}, but its lease has expired; a live worker will recover it"
    holder, left = seen.holder, seen.holder.lease - seen.age
    pid = record.pid or holder.pid
    return (
        f"worker {holder.id} on node {holder.node} runs it {since} (pid {pid}); "
        f"its lease is valid for another {_span(max(0.0, left))} and is renewed by heartbeats"
    )


def _obstacles(
    record: Record,
    holders: Sequence[HolderInfo],
    pauses: Collection[str],
    busy: Sequence[Record],
    paused: Sequence[Pause],
) -> list[str]:
    """The reasons why a due job is not taken, the most important first."""
    found: list[str] = []
    queue, task = record.queue, record.task
    if queue in pauses:
        found.append(f"queue {queue!r} is paused; `holdfast resume {queue}` resumes it")
    found += [_paused(one) for one in paused if one.resumed_at is None and one.covers(record)]
    workers = [seen for seen in holders if seen.alive and seen.holder.kind == "worker"]
    serving = [seen for seen in workers if queue in seen.holder.queues]
    if not serving:
        found.append(
            f"no live worker serves queue {queue!r} ({len(workers)} serve other queues)"
            if workers
            else "no worker is alive"
        )
        return found
    if ":" not in task and not any(task in seen.holder.tasks for seen in serving):
        hint = "; start one with --shell or without -A" if task == SHELL_TASK else ""
        found.append(f"no live worker of queue {queue!r} has task {task!r} registered{hint}")
    if all(0 < seen.holder.slots <= len(seen.jobs) for seen in serving):
        slots = sum(seen.holder.slots for seen in serving)
        last = max((one.started_at or 0 for one in busy), default=0)
        since = f" since {_time(last)}" if last else ""
        found.append(f"all {slots} slots of the {len(serving)} workers of queue {queue!r} are busy{since}")
    elif record.quarantined:
        found.append("it is quarantined after a crash of its process, so it waits for a worker that runs no other job")
    return found


def _time(micros: int | None) -> str:
    return "an unknown time" if micros is None else moment(micros).isoformat(" ", "seconds")


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
