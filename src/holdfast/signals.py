"""Signals: named values that jobs wait for, whether they are sent before or after.

Waking a job puts the value among its steps, in one guarded change. No wake-up is lost, whoever dies when:

1. A signal's value is kept (a record of kind `signal:NAME`) before its waiters are looked for. Whoever begins to wait
   later looks for it once more when the store has written that it waits (`look_again`), and until then is due again
   within a minute.
2. A record of kind `signal` says which signals there are, and which of them have not been told to all who waited.
   Upkeep tells those, and forgets a signal when its time is over: that for which keys are remembered.
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
from .job import Change, Patch, Record, State, Where
from .remember import MOST_UNSEEN

if TYPE_CHECKING:
    from .session import Session
    from .store.protocol import Versioned

T = TypeVar("T")
KIND = "signal"
PAGE = 1000
_WAITING = (State.BLOCKED, State.SCHEDULED)


class Sent(msgspec.Struct, frozen=True):
    """A signal's value, and when it was sent."""

    at: int
    value: Raw


class Entry(msgspec.Struct, frozen=True):
    """That there is such a signal."""

    at: int
    told: bool


_read_sent = msgspec.json.Decoder(Sent).decode
_read_entry = msgspec.json.Decoder(Entry).decode


def kind_of(name: str) -> str:
    """The kind of the one record that has a signal's value: one reads it without reading all others."""
    return f"{KIND}:{name}"


async def send(session: Session, name: str, value: Any) -> int:
    """Keep a value under a name and wake every job that waits for it; how many."""
    store, name = session.store, checked_name(name, "signal")
    data, most = encode_value(value, exact=True, what=f"the value of signal {name!r}"), session.settings.max_payload
    if len(data) > most:
        raise PayloadTooLarge(f"signal {name!r}: a value of {len(data)} bytes is over max_payload ({most})")
    now = await store.now()
    await _enter(session, name, now, told=False)
    await store.put_record(kind_of(name), name, msgspec.json.encode(Sent(now, Raw(data))))
    woken = await _wake(session, name, data)
    await _enter(session, name, now, told=True)
    return woken


async def look_again(session: Session, id: str) -> None:
    """A job has just begun to wait for a signal: wake it if that was sent meanwhile, else let it wait in peace."""
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
    for name, kept in (await store.records(KIND)).items():
        entry = _read(_read_entry, kept)
        if entry is None or (entry.told and entry.at > over):
            continue
        record = (await store.records(kind_of(name))).get(name)
        sent = _read(_read_sent, record)
        if not entry.told and sent is not None:
            await _wake(session, name, bytes(sent.value))
            await store.put_record(KIND, name, msgspec.json.encode(Entry(entry.at, told=True)), kept.version)
        elif entry.at <= over:  # its value first: what is entered nowhere could never be forgotten
            if record is not None and sent is not None and sent.at <= over:
                await store.put_record(kind_of(name), name, None, record.version)
            await store.put_record(KIND, name, None, kept.version)


async def _enter(session: Session, name: str, at: int, *, told: bool) -> None:
    await session.store.put_record(KIND, name, msgspec.json.encode(Entry(at, told)))


async def _sent(session: Session, name: str) -> Sent | None:
    return _read(_read_sent, (await session.store.records(kind_of(name))).get(name))


def _read(decode: Callable[[bytes], T], kept: Versioned | None) -> T | None:
    """A record, where there is one that can be read; whoever else wrote it harms nobody."""
    try:
        return None if kept is None else decode(kept.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
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


def _woken(record: Record, name: str, value: bytes, now: int) -> Change:
    memory = steps.answered(record.checkpoint, name, value, now)
    return Change(record.id, record.state, record.fence, Patch(state=State.QUEUED, delay=0.0, checkpoint=memory))


def _left_in_peace(record: Record, name: str, now: int) -> Change | None:
    """From now on only the signal wakes it, or its own time limit; None where that comes first anyway."""
    step = steps.read(record.checkpoint).find("signal", name)
    until = None if step is None else step.until
    if until is None:
        patch = Patch(state=State.BLOCKED, waits=record.waits)
    elif until - now > MOST_UNSEEN * MICROS:
        patch = Patch(state=State.SCHEDULED, delay=(until - now) / MICROS, waits=record.waits)
    else:
        return None
    return Change(record.id, record.state, record.fence, patch)
