"""Signals: named values that jobs wait for, sent before or after the wait begins.

Waking a job adds the value to its steps, in one guarded change. No wake-up is lost, whichever process crashes:

1. A signal's value is stored (a record of kind `signal:NAME`) before its waiting jobs are looked up. A job that begins
   to wait later is checked once more after the store has written its wait (`look_again`), and until then is due again
   within a minute.
2. A record of kind `signal` lists each signal until all waiting jobs have been woken. Maintenance wakes the others.
3. From then on it is listed in a record of kind `signal_hour:HOUR`, the hour in which it was sent. Maintenance reads
   the hours (kind `signal_hour`), and removes the signals of one after `key_retention` seconds.
4. The names of these records contain the time at which the signal was sent. A signal that is sent again has new
   records, and the newest counts. Old records are removed by their versions, so a late removal never removes a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from ..codec import encode_value
from ..core import step_log as steps
from ..core.clock import MICROS
from ..core.errors import OutcomeUnknown, PayloadTooLarge, StoreUnavailable
from ..core.internal import deadline
from ..core.job import UNDECODABLE, Record, State
from ..core.operations import Change, Patch, Where
from ..core.validation import checked_name
from ..core.waiting import Waiting
from ..core.writes import Writes
from ..store.group_commit import PAGE
from ..store.protocol import records_of
from ..store.worker_writes import RecordKind, WorkerWrites, any_worker, kind_in, resumes
from ..tasks.durable_steps import RECHECK_AFTER

if TYPE_CHECKING:
    from ..store.protocol import Versioned
    from .session import Session

T = TypeVar("T")
logger = logging.getLogger("holdfast")
SIGNAL_KINDS = KIND, HOURS = "signal", "signal_hour"
HOUR = 3600 * MICROS
"""Microseconds."""
LIST_EVERY = 600.0
"""Seconds after which a process that sends signals lists their hour again."""
WATCHED = 3600.0 + LIST_EVERY
"""Seconds for which a process must have seen an hour unchanged before it removes its signals."""
FORGET_LIMIT = 1000
"""Signals that are removed at a time."""
_WAITING = (State.BLOCKED, State.SCHEDULED)


class Sent(msgspec.Struct, frozen=True):
    """A signal's value."""

    value: Raw


_read_sent = msgspec.json.Decoder(Sent).decode


def kind_of(name: str) -> str:
    """The record kind of a signal's values: one is read without reading all others."""
    return kind_in(KIND, name)


def kind_of_hour(hour: str) -> str:
    """The record kind of the signals that were sent in an hour."""
    return kind_in(HOURS, hour)


WRITES = WorkerWrites(
    records=tuple(RecordKind(kind, worker=any_worker) for kind in (KIND, kind_of(""), HOURS, kind_of_hour(""))),
    change=resumes("delay", "waiting_for", "checkpoint"),
)


async def send(session: Session, name: str, value: Any) -> int:
    """Store a value under a name and wake every job that waits for it; returns how many.

    After the value is stored, the signal is sent: workers wake the remaining jobs. Sending it again is safe.
    """
    store, name = session.store, checked_name(name, "signal")
    data, limit = encode_value(value, exact=True, what=f"the value of signal {name!r}"), session.settings.max_payload
    if len(data) > limit:
        raise PayloadTooLarge(
            f"signal {name!r} was not sent: its value of {len(data)} bytes is over max_payload ({limit}); send a"
            " smaller value"
        )
    earlier = _values(await records_of(store, kind_of(name)))
    at = max([await store.now(), *(before + 1 for before in earlier)])  # the newest, even if the clock goes back
    await store.put_record(KIND, f"{at}:{name}", b"{}")
    await store.put_record(kind_of(name), str(at), msgspec.json.encode(Sent(Raw(data))))
    then = "its value is stored, and workers wake the jobs that wait for it; sending it again is safe"
    with Writes(f"signal {name!r}", then, made=1):
        woken = await _wake(session, name, data)
    try:
        await _delivered(session, name, at)
        for before, kept in earlier.items():
            await store.put_record(kind_of(name), str(before), None, kept.version)
            await store.put_record(kind_of_hour(str(before // HOUR)), f"{before}:{name}", None)
    except (StoreUnavailable, OutcomeUnknown) as error:
        logger.info(
            "signal %s was sent; its earlier values were not removed yet; workers will remove them: %s", name, error
        )
    return woken


async def look_again(session: Session, id: str) -> None:
    """A job has just begun to wait for a signal: wake it if that was sent meanwhile, else remove its early due time.

    Only this function times a wait out: it looks for the signal after the timeout.
    """
    (record,) = await session.store.get([id])
    if (
        record is None
        or record.state != State.SCHEDULED
        or record.waiting_for is None
        or record.waiting_for.kind != "signal"
    ):
        return
    name = record.waiting_for.name
    sent, now = await _sent(session, name), await session.store.now()
    rest = _left_in_peace(record, name, now)
    change = rest if sent is None else _woken(record, name, bytes(sent.value), now)
    if change is not None:  # if it is rejected, the job was woken, claimed or cancelled meanwhile
        await session.commit.change([change])


class SignalMaintenance:
    """Wakes jobs after a crash of a sender, and removes signals after their retention.

    Their age is measured by the store's clock, which may be the wrong clock of one process. So a process removes the
    signals of an hour only after it has itself seen for an hour that there are no new ones.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[str, tuple[int, float]] = {}
        """Undelivered signals and hours by name: the version, and when it was first seen here (monotonic clock)."""

    async def run(self, found: Mapping[str, Mapping[str, Versioned]] | None = None) -> None:
        """Run once. What it reads does not grow with the number of kept signals.

        `found`: the records of `SIGNAL_KINDS`, if they were read just now.
        """
        session = self._session
        found = await session.store.records(SIGNAL_KINDS) if found is None else found
        undelivered, hours = found[KIND], found[HOURS]
        self._look_at({**undelivered, **hours})
        if not self._seen:
            return
        limit = await session.store.now() - int(session.settings.key_retention * MICROS)
        over: dict[str, Versioned] = {}
        for entered, kept in undelivered.items():
            at, name = _parsed(entered)
            if at is not None and (sent := await _sent(session, name, at)) is not None:
                await _wake(session, name, bytes(sent.value))
                await _delivered(session, name, at, kept.version)
            elif at is not None and at <= limit and self._watched(entered):
                over[entered] = kept
        if over:
            await self._forget(KIND, over)
        for hour, kept in hours.items():
            if hour.isdecimal() and (int(hour) + 1) * HOUR <= limit and self._watched(hour):
                await self._forget_hour(hour, kept)

    def _look_at(self, records: Mapping[str, Versioned]) -> None:
        first, now = self._seen, self._session.clock.monotonic()
        self._seen = {
            name: before if (before := first.get(name, (0, now)))[0] == kept.version else (kept.version, now)
            for name, kept in records.items()
        }

    def _watched(self, name: str) -> bool:
        return self._session.clock.monotonic() - self._seen[name][1] >= WATCHED

    async def _forget_hour(self, hour: str, listed: Versioned) -> None:
        """Remove the signals of an hour, some at a time, then the hour, unless a signal was sent in it meanwhile."""
        entries = await records_of(self._session.store, kind_of_hour(hour))
        if await self._forget(kind_of_hour(hour), dict(islice(entries.items(), FORGET_LIMIT))) == len(entries):
            await self._session.store.put_record(HOURS, hour, None, listed.version)

    async def _forget(self, kind: str, over: Mapping[str, Versioned]) -> int:
        """Remove expired signals, each by its version: one that was sent again meanwhile has others. Returns how many.

        The value is removed first: a value without an entry would never be removed. A signal is undelivered from before
        its value is written until its entry is: if it is not, and the entry is unchanged after the value is read, the
        value is the old one too.
        """
        store, removed = self._session.store, 0
        values: dict[str, Versioned] = {}
        for entered in over:
            at, name = _parsed(entered)
            if at is not None and (kept := (await records_of(store, kind_of(name))).get(str(at))) is not None:
                values[entered] = kept
        still = await store.records([KIND, kind])
        for entered, kept in over.items():
            sent_again = kind != KIND and entered in still[KIND]
            if sent_again or entered not in still[kind] or still[kind][entered].version != kept.version:
                continue
            (at, name), value = _parsed(entered), values.get(entered)
            if value is None or await store.put_record(kind_of(name), str(at), None, value.version):
                removed += await store.put_record(kind, entered, None, kept.version)
        return removed


def _parsed(entered: str) -> tuple[int | None, str]:
    """When a signal was sent (None if that cannot be read), and its name."""
    at, _, name = entered.partition(":")
    return (int(at) if at.isascii() and at.isdecimal() and len(at) < 20 else None), name


async def _delivered(session: Session, name: str, at: int, version: int | None = None) -> None:
    """All waiting jobs have been woken: enter the signal in its hour, so that it is removed after its retention."""
    store, hour, now = session.store, str(at // HOUR), session.clock.monotonic()
    if session.signal_hour[0] != hour or now - session.signal_hour[1] > LIST_EVERY:
        await store.put_record(HOURS, hour, b"{}")
        session.signal_hour = hour, now
    await store.put_record(kind_of_hour(hour), f"{at}:{name}", b"{}")
    await store.put_record(KIND, f"{at}:{name}", None, version)


async def _sent(session: Session, name: str, at: int = 0) -> Sent | None:
    """The last sent value; None if none was sent, or none since `at`."""
    values = _values(await records_of(session.store, kind_of(name)))
    return _read(_read_sent, values[max(values)]) if values and max(values) >= at else None


def _values(records: dict[str, Versioned]) -> dict[int, Versioned]:
    """The values of a signal by the time they were sent."""
    return {int(name): kept for name, kept in records.items() if name.isascii() and name.isdecimal() and len(name) < 20}


def _read(decode: Callable[[bytes], T], kept: Versioned) -> T | None:
    """A decoded record; None if it cannot be decoded."""
    try:
        return decode(kept.value)
    except UNDECODABLE:
        return None


async def _wake(session: Session, name: str, value: bytes) -> int:
    """Wake all jobs that wait for a signal; jobs that changed meanwhile are tried again."""
    where, woken, refused = Where(_WAITING, waiting_for=Waiting("signal", name)), 0, True
    while refused:
        refused, cursor = False, None
        while True:
            found = await session.store.find(where, cursor, PAGE)
            now = await session.store.now()
            changes = [_woken(record, name, value, now) for record in found.records]
            written = await session.commit.change(changes) if changes else []
            woken, refused, cursor = woken + sum(written), refused or not all(written), found.cursor
            if cursor is None:
                break
    return woken


def _woken(record: Record, name: str, value: bytes | None, now: int) -> Change:
    memory = steps.answered(record.checkpoint, name, value, now)
    return Change(record.id, record.state, record.fence, Patch(state=State.QUEUED, delay=0.0, checkpoint=memory))


def _left_in_peace(record: Record, name: str, now: int) -> Change | None:
    """From now on only the signal, its timeout or the job's deadline wakes the job; None if that comes first anyway.

    If the timeout has passed, the job resumes without the signal.
    """
    step = steps.read(record.checkpoint).find("signal", name)
    limits = (None if step is None else step.until, deadline(record))
    until = min((limit for limit in limits if limit is not None), default=None)
    if until is None:
        patch = Patch(state=State.BLOCKED, waiting_for=record.waiting_for)
    elif until <= now:
        return _woken(record, name, None, now)
    elif until - now > RECHECK_AFTER * MICROS:
        patch = Patch(state=State.SCHEDULED, delay=(until - now) / MICROS, waiting_for=record.waiting_for)
    else:
        return None
    return Change(record.id, record.state, record.fence, patch)
