"""What happened over time: transitions of jobs, outcomes of claims, and recorded queue depths.

A store counts outcomes by minute. Queue depths are not counted by stores: a running server records them once a
minute, one record per hour, for as long as minutes are kept. Times without a server are a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter

import msgspec

from ..core.clock import MICROS
from ..core.errors import InvalidJob
from ..core.job import UNDECODABLE, State
from ..core.operations import MinuteStats, QueueStats, Transitions
from ..core.validation import checked_cursor, checked_seconds
from ..store.protocol import MINUTE_STATS_KEPT, Versioned, records_of
from ..store.worker_writes import RecordKind, WorkerWrites
from ..views import moment
from .latency import Comparison, Latency, compared, latency
from .runtime import Runtime, on_app_loop
from .search import checked_time, reading_from
from .session import Session
from .worker_log import EndedWorker, ended_workers, record_workers

KIND = "depth"
"""The record kind; each record is named after the start of its hour, in seconds."""
WRITES = WorkerWrites(records=(RecordKind(KIND),))
HOUR, MINUTE = 3600, 60
"""Seconds."""
MAX_RECORDED_QUEUES = 100
"""Queues that are recorded, the deepest first."""
TOTAL = ""
"""The name of the total of all queues in a record; no queue has it."""
MAX_SPAN = 86400
"""Seconds that a compared span can have."""
TRANSITIONS = 1000
"""Default number of transitions that one call returns."""


class Rate(msgspec.Struct, frozen=True):
    """How many claims ended with one outcome within one step."""

    at: datetime
    """Start of the step."""
    queue: str | None
    """None: all queues."""
    outcome: str
    count: int
    waited: float
    """Sum of the seconds from due to claimed."""
    ran: float
    """Sum of the seconds from claimed to ended."""


class Depth(msgspec.Struct, frozen=True):
    """The number of queued jobs."""

    at: datetime
    queued: int
    """In all queues."""
    queues: dict[str, int]
    """By queue, the 100 deepest, without empty queues. A queue that is missing was empty if the sum is `queued`."""


class Timeseries:
    """Reads from a store what happened over time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @on_app_loop
    async def transitions(self, session: Session, since: str | None = None, limit: int = TRANSITIONS) -> Transitions:
        """The transitions since the cursor of an earlier answer; None: from now on. See `Store.transitions`."""
        with reading_from(since, "transitions()"):
            return await session.store.transitions(checked_cursor(since), limit)

    @on_app_loop
    async def stats_by_minute(self, session: Session, since: timedelta | float) -> list[MinuteStats]:
        """Outcomes of claims by minute, over the last `since`, by (minute, queue, task, outcome)."""
        found = await session.store.stats_by_minute(await _start(session, since))
        return sorted(found, key=attrgetter("at", "queue", "task", "outcome"))

    @on_app_loop
    async def rates(
        self, session: Session, since: timedelta | float, step: timedelta | float = 60, *, by_queue: bool = False
    ) -> list[Rate]:
        """Outcomes of claims over the last `since`, in steps of whole minutes."""
        minutes = await session.store.stats_by_minute(await _start(session, since))
        return rates(minutes, checked_step(step), by_queue=by_queue)

    @on_app_loop
    async def latency(self, session: Session, since: timedelta | float, step: timedelta | float = 60) -> Latency:
        """Outcomes, and percentiles of waiting and run times, over the last `since`: by step, queue and task."""
        return latency(await session.store.stats_by_minute(await _start(session, since)), checked_step(step))

    @on_app_loop
    async def compare(self, session: Session, start: datetime, end: datetime) -> Comparison:
        """The same within a span, and as long before and after it, by queue and task. Whole minutes, up to 24 h."""
        since, until = checked_span(start, end)
        return compared(await session.store.stats_by_minute(2 * since - until), since, until)

    @on_app_loop
    async def depth_by_minute(
        self, session: Session, since: timedelta | float, step: timedelta | float = 60
    ) -> list[Depth]:
        """Queue depths over the last `since`, as `record_depth` stored them, in steps of whole minutes."""
        start = await _start(session, since)
        return depths(await records_of(session.store, KIND), start, checked_step(step))

    @on_app_loop
    async def ended_workers(self, session: Session) -> list[EndedWorker]:
        """The workers that ended within the last hour, as `record_workers` noticed it, the last ones first."""
        return await ended_workers(session)

    @on_app_loop
    async def record_workers(self, session: Session) -> bool:
        """Record which workers have come and gone; False: none, or another process has recorded it."""
        return await record_workers(session)

    @on_app_loop
    async def record_depth(self, session: Session) -> bool:
        """Record the number of queued jobs of this minute; False if another process has already."""
        store = session.store
        note = noting(await records_of(store, KIND), await store.stats(), await store.now())
        if note is None:
            return False
        for name in note.over:
            await store.put_record(KIND, name, None)
        return await store.put_record(KIND, note.name, note.value, note.version)


async def _start(session: Session, since: timedelta | float) -> int:
    return await session.store.now() - int(checked_seconds(since, "since") * MICROS)


def checked_span(start: datetime, end: datetime) -> tuple[int, int]:
    """A span in microseconds, extended to whole minutes."""
    minute = MINUTE * MICROS
    since, until = checked_time(start, "start") // minute * minute, -(-checked_time(end, "end") // minute) * minute
    if not 0 < until - since <= MAX_SPAN * MICROS:
        raise InvalidJob(f"end must be after start, by at most {MAX_SPAN} seconds")
    return since, until


def checked_step(step: timedelta | float) -> int:
    seconds = int(checked_seconds(step, "step"))
    if seconds < 60 or seconds % 60:
        raise InvalidJob(f"step must be a multiple of 60 seconds, not {seconds} seconds")
    return seconds


def rates(minutes: Iterable[MinuteStats], step: int, *, by_queue: bool) -> list[Rate]:
    """Minutes summed in steps of `step` seconds, by (time, queue, outcome)."""
    sums: dict[tuple[int, str, str], list[int]] = {}
    for one in minutes:
        where = (one.at // MICROS // step * step, one.queue if by_queue else "", one.outcome)
        found = sums.setdefault(where, [0, 0, 0])
        found[0] += one.count
        found[1] += one.waited
        found[2] += one.ran
    return [
        Rate(moment(at * MICROS), queue if by_queue else None, outcome, count, waited / MICROS, ran / MICROS)
        for (at, queue, outcome), (count, waited, ran) in sorted(sums.items())
    ]


def depths(records: Mapping[str, Versioned], since: int, step: int) -> list[Depth]:
    """The recorded depths since then, the last of each step of `step` seconds."""
    found: dict[int, Depth] = {}
    for name, kept in records.items():
        hour = _hour(name)
        if hour is None or (hour + HOUR) * MICROS < since:
            continue
        for number, queues in sorted(_noted(kept).items(), key=lambda one: int(one[0])):
            at = hour + int(number) * MINUTE
            if at * MICROS >= since:
                before = found.get(at // step)
                if before is None or before.at < moment(at * MICROS):
                    total = queues.pop(TOTAL, None)
                    queued = sum(queues.values()) if total is None else total
                    found[at // step] = Depth(moment(at * MICROS), queued, queues)
    return [found[number] for number in sorted(found)]


class Noting(msgspec.Struct, frozen=True):
    """What to write: this hour's record with its version, and the hours to remove."""

    name: str
    value: bytes
    version: int
    over: tuple[str, ...]


def noting(records: Mapping[str, Versioned], queues: Iterable[QueueStats], now: int) -> Noting | None:
    """The depth of every queue in this minute; None if it is already recorded."""
    seconds = now // MICROS
    hour, number = seconds // HOUR * HOUR, str(seconds % HOUR // MINUTE)
    kept = records.get(str(hour))
    noted = {} if kept is None else _noted(kept)
    if number in noted:
        return None
    deep = sorted(((count, one.name) for one in queues if (count := one.counts.get(State.QUEUED, 0))), reverse=True)
    noted[number] = {name: count for count, name in deep[:MAX_RECORDED_QUEUES]}
    if len(deep) > MAX_RECORDED_QUEUES:
        noted[number][TOTAL] = sum(count for count, _ in deep)
    over = tuple(name for name in records if (at := _hour(name)) is None or at < seconds - MINUTE_STATS_KEPT - HOUR)
    return Noting(str(hour), msgspec.json.encode(noted), 0 if kept is None else kept.version, over)


def _hour(name: str) -> int | None:
    return int(name) if name.isascii() and name.isdigit() and len(name) < 16 else None


def _noted(kept: Versioned) -> dict[str, dict[str, int]]:
    try:
        noted = msgspec.json.decode(kept.value, type=dict[str, dict[str, int]])
    except UNDECODABLE:
        return {}  # undecodable; the next write replaces it
    return {number: queues for number, queues in noted.items() if number.isascii() and number.isdigit()}
