"""Explains why the jobs of a queue or of the store wait: one sentence of parts, each with a count and an action.

The counts of queues come from the store's statistics. What blocked jobs wait for comes from indexed lookups that read
1,000 jobs at most, so that the cost does not grow with the number of jobs.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ..core.errors import InvalidJob
from ..core.flow_rules import QUEUE as FLOW_QUEUE
from ..core.job import Record, State
from ..core.operations import HolderInfo, QueueStats, Where
from ..core.validation import checked_name
from ..core.waiting import COMPATIBLE, Waiting
from ..views import with_listeners
from .pauses import KIND as PAUSES
from .pauses import Pause, read
from .session import Session

LOOKUP = 250
"""Jobs that one lookup reads: each may have a megabyte."""
REASONS_READ = 1000
"""Jobs that all lookups of one explanation read."""
MAX_LOOKUPS = 20
"""Pauses, limits and signals that are looked up."""
MAX_EXAMPLES = 3
"""Queues, tasks, limits and signals that a part names."""

Kind = Literal[
    "no_worker", "queue_paused", "busy", "ready", "task_paused", "refused", "limit", "signal", "flow", "blocked",
    "retry", "scheduled",
]  # fmt: skip
"""Why jobs wait. `flow`: flows whose jobs have not ended. `blocked`: for another job, or for what was not counted."""


class Reason(msgspec.Struct, frozen=True):
    """One reason why jobs wait, with what an operator can do about it."""

    kind: Kind
    count: int
    """Jobs that wait for this reason."""
    text: str
    """The reason as a part of a sentence, with the count."""
    action: str
    """What to do; commands are in backticks."""
    names: tuple[str, ...] = ()
    """The queues, tasks, limits or signals concerned, at most 3, those with the most jobs first."""
    total: int = 0
    """How many of them there are."""
    exact: bool = True
    """False: at least this many; counting stopped there."""


class Reasons(msgspec.Struct, frozen=True):
    """Why the jobs of a queue or of a store wait."""

    queue: str | None
    """None: the whole store."""
    waiting: int
    """Jobs that are queued, scheduled, blocked, or failed and due for a retry. The parts add up to this number."""
    running: int
    reason: str
    """The whole sentence."""
    parts: tuple[Reason, ...] = ()
    """The most important first."""


async def reasons(session: Session, queue: str | None = None) -> Reasons:
    """Read the store and explain why jobs wait; InvalidJob if there is no such queue."""
    if queue is not None:
        checked_name(queue, "queue")
    store = session.store
    holders, records = await store.holders(), await store.records([PAUSES])
    workers = [seen.holder for seen in holders if seen.alive and seen.holder.kind == "worker"]
    queues = with_listeners(await store.stats(), workers)
    if queue is not None:
        queues = [one for one in queues if one.name == queue]
        if not queues:
            raise InvalidJob(f"queue {queue!r} has no job and no worker; `holdfast queues` lists the queues")
    return summary(queues, holders, await _counted(session, read(records[PAUSES]), queues, queue), queue)


class Waits(msgspec.Struct):
    """What jobs wait for besides a worker and their due time, as far as it was counted."""

    paused: Counter[str] = msgspec.field(default_factory=Counter)
    """By the name of the pause."""
    flags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The same pauses as options of `holdfast resume`."""
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    """By task."""
    limits: Counter[str] = msgspec.field(default_factory=Counter)
    signals: Counter[str] = msgspec.field(default_factory=Counter)
    flows: int = 0
    scheduled: int = 0
    """How many of the counted jobs are scheduled: refused jobs, and those that wait for a signal with a timeout."""
    more: set[Kind] = msgspec.field(default_factory=set[Kind])
    """Of these kinds there are more than were counted."""


async def _counted(session: Session, pauses: Sequence[Pause], queues: Sequence[QueueStats], queue: str | None) -> Waits:
    found = Waits()
    blocked = {one.name: one.counts.get(State.BLOCKED, 0) for one in queues}
    found.flows = blocked.get(FLOW_QUEUE, 0)
    if sum(blocked.values()) <= found.flows and not any(one.counts.get(State.SCHEDULED) for one in queues):
        return found
    left = REASONS_READ

    async def look(kind: Kind, waiting_for: Waiting) -> list[Record]:
        nonlocal left
        page = await session.store.find(Where(waiting_for=waiting_for), None, max(1, min(LOOKUP, left)))
        left = max(0, left - len(page.records))
        if page.cursor is not None:
            found.more.add(kind)
        states = (State.BLOCKED, State.SCHEDULED)
        these = [one for one in page.records if one.state in states and queue in (None, one.queue)]
        found.scheduled += sum(1 for one in these if one.state == State.SCHEDULED)
        return these

    for record in await look("refused", COMPATIBLE):
        found.refused[record.task] += 1
    for pause in pauses[:MAX_LOOKUPS]:
        found.flags[pause.name] = pause.flags
        found.paused[pause.name] = len(await look("task_paused", pause.waiting_for))
    for waiting_for in await _seen(session):
        if waiting_for.kind == "limit":
            found.limits[waiting_for.name] += len(await look("limit", waiting_for))
        else:
            found.signals[waiting_for.name] += len(await look("signal", waiting_for))
    return found


async def _seen(session: Session) -> list[Waiting]:
    """The limits and signals that the newest jobs wait for, and the limits of running jobs: a store lists no others."""
    newest = (await session.store.find(Where(), None, LOOKUP)).records
    running = (await session.store.find(Where((State.RUNNING,)), None, LOOKUP)).records
    waits = [one.waiting_for for one in newest if one.waiting_for is not None]
    waits += [Waiting("limit", one.limit_key.name) for one in running if one.limit_key is not None]
    return list(dict.fromkeys(one for one in waits if one.kind in ("limit", "signal")))[:MAX_LOOKUPS]


def summary(
    queues: Sequence[QueueStats], holders: Sequence[HolderInfo], waits: Waits, queue: str | None = None
) -> Reasons:
    """The same from values."""
    total = Counter[str]()
    for one in queues:
        total.update(one.counts)
    scheduled = min(waits.scheduled, total[State.SCHEDULED])
    parts = [*_queued(queues, holders), *_waits(waits, max(0, total[State.BLOCKED] - waits.flows) + scheduled)]
    if retries := total[State.FAILED]:
        action = "`holdfast list --state failed` shows them and their errors"
        parts.append(Reason("retry", retries, f"{retries:,} for a retry after a failure", action))
    if later := total[State.SCHEDULED] - scheduled:
        action = "`holdfast list --state scheduled` shows when they are due"
        parts.append(Reason("scheduled", later, f"{later:,} for their due time", action))
    waiting = sum(total[state] for state in (State.QUEUED, State.BLOCKED, State.FAILED, State.SCHEDULED))
    return Reasons(queue, waiting, total[State.RUNNING], _sentence(waiting, total[State.RUNNING], parts), tuple(parts))


def _queued(queues: Sequence[QueueStats], holders: Sequence[HolderInfo]) -> Iterable[Reason]:
    """The reasons of queued jobs, by the state of their queues."""
    serving: dict[str, list[HolderInfo]] = {}
    for seen in holders:
        if seen.alive and seen.holder.kind == "worker":
            for name in dict.fromkeys(seen.holder.queues):
                serving.setdefault(name, []).append(seen)
    kinds: dict[Kind, Counter[str]] = {kind: Counter() for kind in ("no_worker", "queue_paused", "busy", "ready")}
    for one in queues:
        if not (count := one.counts.get(State.QUEUED, 0)):
            continue
        workers = serving.get(one.name, [])
        if one.paused:
            kinds["queue_paused"][one.name] = count
        elif not workers:
            kinds["no_worker"][one.name] = count
        elif all(0 < seen.holder.slots <= len(seen.jobs) for seen in workers):
            kinds["busy"][one.name] = count
        else:
            kinds["ready"][one.name] = count
    for kind, counts in kinds.items():
        if counts:
            yield _of_queues(kind, counts)


def _of_queues(kind: Kind, counts: Counter[str]) -> Reason:
    names, one = _largest(counts), len(counts) == 1
    first = shlex.quote(names[0])
    where = f"in queue {names[0]!r}" if one else f"in {len(counts):,} queues"
    listed = "" if one else f" ({_listed(names, len(counts))})"
    match kind:
        case "no_worker":
            text = f"{where}, which no live worker serves" if one else f"{where} that no live worker serves{listed}"
            action = f"start a worker for {'it' if one else 'them'}: `holdfast worker start --queues {','.join(names)}`"
        case "queue_paused":
            text = f"in the paused queue {names[0]!r}" if one else f"in {len(counts):,} paused queues{listed}"
            action = f"`holdfast resume {first}` resumes {'it' if one else 'the first'}"
        case "busy":
            text = f"{where}, whose workers are all busy" if one else f"{where} whose workers are all busy{listed}"
            action = "start more workers, or raise `--concurrency`"
        case _:
            text = f"for the next free worker {where}{listed}"
            action = f"if they stay: `holdfast list --state queued --queue {first}`, then `holdfast explain ID` for one"
    count = counts.total()
    return Reason(kind, count, f"{count:,} {text}", action, names, len(counts))


def _waits(waits: Waits, left: int) -> Iterable[Reason]:
    """The reasons of `left` jobs that wait for something, and of flows. What was not counted is the rest."""
    flags = waits.flags.get(next(iter(_largest(waits.paused)), ""), "")
    signal = next(iter(_largest(waits.signals)), "")
    kinds: Mapping[Kind, tuple[Counter[str], str, str, str]] = {
        "task_paused": (waits.paused, "paused task", "paused tasks", f"`holdfast resume {flags}` resumes the task"),
        "refused": (
            waits.refused,
            "a worker that knows task",
            "workers that know their tasks",
            "deploy workers with this code, or use `holdfast move`; `holdfast status` shows the errors",
        ),
        "limit": (
            waits.limits,
            "limit",
            "limits",
            "they start as running jobs end or the rate allows; raise the limit in the code to run more",
        ),
        "signal": (waits.signals, "signal", "signals", f"`holdfast signal {shlex.quote(signal)}` wakes its jobs"),
    }
    for kind, (counted, word, words, action) in kinds.items():
        counts = +counted
        if not (count := min(left, counts.total())):
            continue
        left -= count
        names, exact = _largest(counts), kind not in waits.more
        many = f"{len(counts):,} {words} ({_listed(names, len(counts))})"
        what = f"{word} {names[0]!r}" if len(counts) == 1 else many
        number = f"{'' if exact else 'at least '}{count:,}"
        yield Reason(kind, count, f"{number} for {what}", action, names, len(counts), exact)
    if left:
        text = f"{left:,} for another job of their flow, a limit, a signal or a pause"
        action = "`holdfast list --state blocked`, then `holdfast explain ID` for one of them"
        yield Reason("blocked", left, text, action)
    if waits.flows:
        text = f"{waits.flows:,} {'is a flow' if waits.flows == 1 else 'are flows'} whose jobs have not ended"
        yield Reason("flow", waits.flows, text, "`holdfast flow list --state blocked` shows them")


def _sentence(waiting: int, running: int, parts: Sequence[Reason]) -> str:
    runs = f"{running:,} run{'s' if running == 1 else ''}"
    if not waiting:
        return f"no job waits; {runs}" if running else "no job waits"
    return f"{waiting:,} job{' waits' if waiting == 1 else 's wait'}: {'; '.join(part.text for part in parts)}"


def _largest(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(name for name, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MAX_EXAMPLES])


def _listed(names: Sequence[str], total: int) -> str:
    return ", ".join(names) + (", …" if total > len(names) else "")
