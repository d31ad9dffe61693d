"""Contents outside the state: large payloads and results, and ended jobs in `done/`."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeVar

import msgspec

from ...core.clock import Entropy
from ...core.job import Record
from ...core.operations import Change, Printed, Where
from ..protocol import Batch
from ..reference.jobs import matches
from . import payload_storage
from .log import Log
from .log_format import VERSION, Damaged, Segment, Table, encode, log_key, pack, unpack, unpacking
from .replica import Archived, Replica
from .requests import Counted

S = TypeVar("S", bound=msgspec.Struct)
KEPT_ENTRIES, KEPT_SEGMENTS = 64, 8
"""Log entries and segments that are cached in memory."""


class Gone(Damaged):
    """An object that the state refers to is missing: deleted after its job ended, or lost."""


class Ended(msgspec.Struct, omit_defaults=True):
    """Ended jobs, whole: the object `done/<name>`."""

    v: int
    jobs: list[Table]
    printed: dict[str, list[Printed]] = {}
    nonces: dict[str, int] = {}


class _Loaded:
    """A segment in memory."""

    def __init__(self, ended: Ended) -> None:
        records = unpack(ended.jobs, Record)
        self.by_id = {record.id: record for record in records}
        self.newest = sorted(records, key=lambda record: record.seq, reverse=True)
        self.printed = ended.printed
        self.nonces = ended.nonces


class Contents:
    """Reads payloads, results and ended jobs, and writes the ones that are stored outside the log."""

    def __init__(self, bucket: Counted, log: Log, entropy: Entropy) -> None:
        self._bucket = bucket
        self._log = log
        self._entropy = entropy
        self._entries: OrderedDict[int, list[Batch]] = OrderedDict()
        self._segments: OrderedDict[str, _Loaded] = OrderedDict()

    # -- payloads and results

    async def fill(self, records: Sequence[Record], *, own: bool = True) -> None:
        """Replace pointers by the bytes that they point to, in these copies of records.

        With `own=False` pointers to separate objects stay, because the object is kept.
        """
        pointing = [r for r in records if r.payload[:1] == b"\0" or (r.result or b"")[:1] == b"\0"]
        values = [value for r in pointing for value in (r.payload, r.result)]
        numbers = sorted(payload_storage.entries(values))
        entries = dict(zip(numbers, await asyncio.gather(*(self._entry(number) for number in numbers)), strict=True))
        for record in pointing:
            record.payload = await self._value(record.payload, record.id, entries, own=own)
            if record.result is not None:
                record.result = await self._value(record.result, record.id, entries, own=own)

    async def _value(self, value: bytes, id: str, entries: Mapping[int, list[Batch]], *, own: bool) -> bytes:
        place = payload_storage.log_place(value)
        if place is not None:
            number, batch, kind, index = place
            found = entries[number][batch]
            value = found.inserts[index].payload if kind == "inserts" else found.settles[index].result or b""
        if not own:
            return value
        key = payload_storage.own_key(value)
        if key is None:
            return payload_storage.bare(value)
        data = await self._bucket.get(key)
        if data is None:
            raise _gone(key, f"a payload or result of job {id}")
        if len(data) != payload_storage.size_of(key):
            raise Damaged(
                f"object {key} of the bucket, a payload or result of job {id}, has {len(data)} bytes instead of"
                f" {payload_storage.size_of(key)}; try again, or restore the object from a backup"
            )
        return data

    async def _entry(self, number: int) -> list[Batch]:
        if number not in self._entries:
            read = await self._log.read(number)
            if read is None:
                raise _gone(log_key(number), "payloads of jobs that have not ended")
            with unpacking(log_key(number), read.data):
                batches = [batched.batch() for batched in read.entry.batches]
            self._entries[number] = batches
            while len(self._entries) > KEPT_ENTRIES:
                self._entries.popitem(last=False)
            return batches
        self._entries.move_to_end(number)
        return self._entries[number]

    # -- objects outside the log

    async def outgoing(self, item: S, field: str) -> S:
        """A payload or result as the log contains it; a large one is first written to its own object."""
        value = getattr(item, field)
        if not isinstance(value, bytes) or (len(value) < payload_storage.BESIDE and not value.startswith(b"\0")):
            return item
        if len(value) < payload_storage.BESIDE:
            return msgspec.structs.replace(item, **{field: payload_storage.plain(value)})
        key = payload_storage.new_key(f"{self._entropy.token():016x}", len(value))
        await self._bucket.put_surely(key, value)
        return msgspec.structs.replace(item, **{field: payload_storage.own(key)})

    async def outgoing_change(self, change: Change) -> Change:
        if change.patch is None:
            return change
        patch = await self.outgoing(await self.outgoing(change.patch, "payload"), "result")
        return msgspec.structs.replace(change, patch=patch)

    # -- ended jobs

    async def write_segment(self, name: str, replica: Replica, as_of: int, ended: Sequence[Record]) -> Segment:
        """Write copies of ended jobs, as they were after entry `as_of`, to `done/`, with their payloads and output."""
        jobs = replica.jobs
        own = [
            key for r in ended for value in (r.payload, r.result) if (key := payload_storage.own_key(value)) is not None
        ]
        ids = sorted(record.id for record in ended)
        printed = {id: [piece.printed for piece in jobs.printed[id]] for id in ids if id in jobs.printed}
        nonces = {id: jobs.nonces[id] for id in ids if id in jobs.nonces}
        await self.fill(ended, own=False)
        await self._bucket.put_surely(f"done/{name}", encode(Ended(VERSION, pack(ended), printed, nonces)))
        times = [record.expires_at for record in ended if record.expires_at is not None]
        return Segment(
            name,
            as_of,
            [(record.seq, record.fence) for record in ended],
            ids[0],
            ids[-1],
            max(times) if len(times) == len(ended) else None,
            own,
        )

    async def _segment(self, name: str) -> _Loaded:
        if name not in self._segments:
            found = await self._log.fetch(f"done/{name}", Ended)
            if found is None:
                raise _gone(f"done/{name}", "ended jobs")
            with unpacking(f"done/{name}", found[1]):
                self._segments[name] = _Loaded(found[0])
            while len(self._segments) > KEPT_SEGMENTS:
                self._segments.popitem(last=False)
        self._segments.move_to_end(name)
        return self._segments[name]

    async def ended(self, replica: Replica, id: str) -> tuple[str, Record, int, list[Printed]] | None:
        """An ended job that has left this state: its segment, itself, its nonce and its output."""
        for archived in _likely(replica, id):
            loaded = await self._segment(archived.name)
            record = loaded.by_id.get(id)
            if record is not None and record.seq not in archived.hidden:
                found = copy(record)
                return archived.name, found, loaded.nonces.get(id, 0), loaded.printed.get(id, [])
        if id in replica.jobs.jobs:
            raise Gone(f"job {id} was changed by another process during this call; nothing was written, try again")
        return None

    async def newest_ended(self, replica: Replica, where: Where, before: int | None, limit: int) -> list[Record]:
        """The ended jobs that match, newest first; at most `limit`."""
        found: list[Record] = []
        for archived in sorted(replica.archived.values(), key=lambda each: each.high, reverse=True):
            if len(found) >= limit and archived.high < found[limit - 1].seq:
                break
            if before is not None and archived.low >= before:
                continue
            loaded = await self._segment(archived.name)
            found += _matching(loaded.newest, archived.hidden, where, before)
            found.sort(key=lambda record: record.seq, reverse=True)
        return [copy(record) for record in found[:limit]]


def _likely(replica: Replica, id: str) -> Iterator[Archived]:
    for archived in reversed(list(replica.archived.values())):
        if archived.first <= id <= archived.last:
            yield archived


def _matching(records: Iterable[Record], hidden: set[int], where: Where, before: int | None) -> list[Record]:
    return [
        record
        for record in records
        if (before is None or record.seq < before) and record.seq not in hidden and matches(record, where)
    ]


def _gone(key: str, what: str) -> Gone:
    return Gone(
        f"object {key}, which contains {what}, is missing in the bucket; try again. If it stays missing, restore it"
        " from a backup, and remove lifecycle rules that delete objects"
    )
