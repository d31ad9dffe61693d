"""Signals: named values that jobs wait for, whether they are sent before or after.

Waking a job puts the value among its steps, in one guarded change. No wake-up is lost, whoever dies when:

1. A signal's value is kept (a record of kind `signal:NAME`) before its waiters are looked for. Whoever begins to wait
   later looks for it once more when the store has written that it waits (`look_again`), and until then is due again
   within a minute.
2. A record of kind `signal` says which signals there are, and which of them have not been told to all who waited.
   Upkeep tells those, and forgets a signal when its time is over: that for which keys are remembered.
3. Both records have the time at which it was sent in their names. A signal that is sent again has new ones, and the
   newest counts: whoever removes old ones, however late, removes no new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from . import steps
from .checks import checked_name
from .clock import MICROS
from .codec import encode_value
from .errors import PayloadTooLarge
from .job import UNDECODABLE, Change, Patch, Record, State, Where
from .remember import MOST_UNSEEN

if TYPE_CHECKING:
    from .session import Session
    from .store.protocol import Versioned

T = TypeVar("T")
KIND = "signal"
PAGE = 1000
_WAITING = (State.BLOCKED, State.SCHEDULED)


class Sent(msgspec.Struct, frozen=True):
    """A signal's value."""

    value: Raw


class Entry(msgspec.Struct, frozen=True):
    """That a signal was sent, and whether all who waited for it have been told."""

    told: bool


_read_sent = msgspec.json.Decoder(Sent).decode
_read_entry = msgspec.json.Decoder(Entry).decode


def kind_of(name: str) -> str:
    """The kind of the records that have a signal's value: one reads it without reading all others."""
    return f"{KIND}:{name}"


async def send(session: Session, name: str, value: Any) -> int:
    """Keep a value under a name and wake every job that waits for it; how many."""
    store, name = session.store, checked_name(name, "signal")
    data, most = encode_value(value, exact=True, what=f"the value of signal {name!r}"), session.settings.max_payload
    if len(data) > most:
        raise PayloadTooLarge(f"signal {name!r}: a value of {len(data)} bytes is over max_payload ({most})")
    earlier = _values(await store.records(kind_of(name)))
    at = max([await store.now(), *(before + 1 for before in earlier)])  # the newest, whatever the clock does
    await _enter(session, name, at, told=False)
    await store.put_record(kind_of(name), str(at), msgspec.json.encode(Sent(Raw(data))))
    woken = await _wake(session, name, data)
    await _enter(session, name, at, told=True)
    for before in earlier:
        await _forget(session, name, before)
    return woken


async def look_again(session: Session, id: str) -> None:
    """A job has just begun to wait for a signal: wake it if that was sent meanwhile, else let it wait in peace.

    Here alone it is said to be too late: nobody else has looked for the signal after the time was over.
    """
    (record,) = await session.store.get([id])
    name = None if record is None else steps.signal_of(record.waits)
    if record is None or name is None or record.state != State.SCHEDULED:
        return
    sent, now = await _sent(session, name), await session.store.now()
    rest = _left_in_peace(record, name, now)
    change = rest if sent is None else _woken(record, name, bytes(sent.value), now)
    if change is not None:
        await session.commit.change([change])


async def upkeep(session: Session) -> None:
    """Tell what a sender that died has not told, and forget what is over."""
    store, now = session.store, await session.store.now()
    over = now - int(session.settings.key_retention * MICROS)
    for entered, kept in (await store.records(KIND)).items():
        at, _, name = entered.partition(":")
        entry = _read(_read_entry, kept)
        if entry is None or not at.isdecimal() or (entry.told and int(at) > over):
            continue
        sent = None if entry.told else await _sent(session, name)
        if sent is not None:
            await _wake(session, name, bytes(sent.value))
            await _enter(session, name, int(at), told=True)
        elif int(at) <= over:
            await _forget(session, name, int(at))


async def _enter(session: Session, name: str, at: int, *, told: bool) -> None:
    await session.store.put_record(KIND, f"{at}:{name}", msgspec.json.encode(Entry(told)))


async def _forget(session: Session, name: str, at: int) -> None:
    """Its value first: what is entered nowhere could never be forgotten."""
    await session.store.put_record(kind_of(name), str(at), None)
    await session.store.put_record(KIND, f"{at}:{name}", None)


async def _sent(session: Session, name: str) -> Sent | None:
    """What was sent last."""
    values = _values(await session.store.records(kind_of(name)))
    return _read(_read_sent, values[max(values)]) if values else None


def _values(records: dict[str, Versioned]) -> dict[int, Versioned]:
    """The values of a signal by when they were sent."""
    return {int(name): kept for name, kept in records.items() if name.isascii() and name.isdecimal() and len(name) < 20}


def _read(decode: Callable[[bytes], T], kept: Versioned) -> T | None:
    """A record, where it can be read; whoever else wrote it harms nobody."""
    try:
        return decode(kept.value)
    except UNDECODABLE:
        return None


async def _wake(session: Session, name: str, value: bytes) -> int:
    """Wake all that wait for a signal, until none is left that was refused because it moved in between."""
    where, woken, refused = Where(_WAITING, waits=steps.waits_for(name)), 0, True
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
    """From now on only the signal wakes it, or its own time limit; None where that comes first anyway.

    Where that is over, it goes on without the signal.
    """
    step = steps.read(record.checkpoint).find("signal", name)
    until = None if step is None else step.until
    if until is None:
        patch = Patch(state=State.BLOCKED, waits=record.waits)
    elif until <= now:
        return _woken(record, name, None, now)
    elif until - now > MOST_UNSEEN * MICROS:
        patch = Patch(state=State.SCHEDULED, delay=(until - now) / MICROS, waits=record.waits)
    else:
        return None
    return Change(record.id, record.state, record.fence, patch)
