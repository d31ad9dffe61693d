"""Workers that were seen in the last day: a running server records who has come and gone, once a minute.

A store knows live workers only. One record has the others, so that they can be listed, and their versions stay known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from ..core.clock import MICROS
from ..core.job import UNDECODABLE
from ..core.operations import HolderInfo
from ..store.protocol import Versioned, records_of
from ..store.worker_writes import RecordKind, WorkerWrites
from ..views import moment
from .session import Session

KIND, NAME = "worker_log", "seen"
WRITES = WorkerWrites(records=(RecordKind(KIND),))
KEPT = 86400 * MICROS
"""Microseconds for which a worker that has ended is kept."""
MAX_KEPT = 500
"""Ended workers that are kept, the last ones."""
ENDED_SHOWN = 3600 * MICROS
"""Microseconds for which a worker that has ended is listed."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker as recorded."""

    node: str
    pid: int
    version: str
    release: str
    started_at: int
    slots: int = 0
    ended_at: int | None = None
    """When a server first missed it; None: alive when last checked."""
    lost: bool = False
    """It had jobs when its lease expired."""


class EndedWorker(msgspec.Struct, frozen=True):
    """A worker that has ended within the last hour."""

    id: str
    node: str
    pid: int
    version: str
    release: str
    slots: int
    started_at: datetime
    ended_at: datetime
    """When a server first missed it; up to a minute late."""
    lost: bool
    """Its lease expired: it ended without deregistering."""


_decode = msgspec.json.Decoder(dict[str, Seen]).decode


def read(records: Mapping[str, Versioned]) -> dict[str, Seen]:
    """The recorded workers by id; {} if the record is missing or damaged."""
    kept = records.get(NAME)
    try:
        return {} if kept is None else _decode(kept.value)
    except UNDECODABLE:
        return {}  # the next write replaces it


def updated(known: Mapping[str, Seen], holders: Iterable[HolderInfo], now: int) -> dict[str, Seen]:
    """The recorded workers after a look at the holders of the store."""
    made: dict[str, Seen] = {}
    lost: set[str] = set()
    for one in holders:
        holder = one.holder
        if holder.kind != "worker":
            continue
        if not one.alive:
            lost.add(holder.id)
            continue
        made[holder.id] = Seen(holder.node, holder.pid, holder.version, holder.release, holder.started_at, holder.slots)
    for id, seen in known.items():
        if id not in made:
            gone = seen.ended_at or now
            made[id] = msgspec.structs.replace(seen, ended_at=gone, lost=seen.lost or id in lost)
    ended = sorted((seen.ended_at, id) for id, seen in made.items() if seen.ended_at is not None)
    for _, id in ended[: max(0, len(ended) - MAX_KEPT)]:
        del made[id]
    return {id: seen for id, seen in made.items() if seen.ended_at is None or seen.ended_at > now - KEPT}


async def record_workers(session: Session) -> bool:
    """Record who has come and gone; False if nothing has changed, or another process has recorded it."""
    store = session.store
    records = await records_of(store, KIND)
    known = read(records)
    now = updated(known, await store.holders(), await store.now())
    if now == known:
        return False
    before = records.get(NAME)
    return await store.put_record(KIND, NAME, msgspec.json.encode(now), 0 if before is None else before.version)


async def ended_workers(session: Session) -> list[EndedWorker]:
    """The workers that ended within the last hour, the last ones first."""
    store = session.store
    now = await store.now()
    alive = {one.holder.id for one in await store.holders() if one.alive}
    found = [
        EndedWorker(
            id,
            one.node,
            one.pid,
            one.version,
            one.release,
            one.slots,
            moment(one.started_at),
            moment(one.ended_at),
            one.lost,
        )
        for id, one in read(await records_of(store, KIND)).items()
        if one.ended_at is not None and one.ended_at > now - ENDED_SHOWN and id not in alive
    ]
    return sorted(found, key=lambda one: (one.ended_at, one.id), reverse=True)


async def versions(session: Session) -> dict[str, str]:
    """The release of each known worker, or else its version of Holdfast, by the worker's id."""
    seen = {id: one.release or one.version for id, one in read(await records_of(session.store, KIND)).items()}
    live = (one.holder for one in await session.store.holders())
    return seen | {holder.id: holder.release or holder.version for holder in live}
