"""Filling in what the state only points to: long payloads and results, and ended jobs that have gone to `done/`."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy

import msgspec

from ...job import Printed, Record, Where
from ..jobs import matches
from ..protocol import Batch
from . import beside
from .log import Log
from .replica import Archived, Replica
from .requests import Counted
from .wire import VERSION, Damaged, Segment, Table, encode, log_key, pack, unpack

KEPT_ENTRIES, KEPT_SEGMENTS = 64, 8
"""What is kept in memory after it was read."""


class Gone(Damaged):
    """What the state points to is not there: the job has ended meanwhile, and this look was too slow; or worse."""


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
    """Reads what jobs are made of."""

    def __init__(self, bucket: Counted, log: Log) -> None:
        self._bucket = bucket
        self._log = log
        self._entries: OrderedDict[int, list[Batch]] = OrderedDict()
        self._segments: OrderedDict[str, _Loaded] = OrderedDict()

    # -- payloads and results

    async def fill(self, records: Sequence[Record], *, own: bool = True) -> None:
        """Put the bytes themselves in the place of pointers, in these copies of records.

        With `own=False` pointers to objects of their own stay: to be kept, not to be read.
        """
        pointing = [r for r in records if r.payload[:1] == b"\0" or (r.result or b"")[:1] == b"\0"]
        values = [value for r in pointing for value in (r.payload, r.result)]
        await asyncio.gather(*(self._entry(number) for number in beside.entries(values)))
        for record in pointing:
            record.payload = await self._value(record.payload, record.id, own=own)
            record.result = None if record.result is None else await self._value(record.result, record.id, own=own)

    async def _value(self, value: bytes, id: str, *, own: bool) -> bytes:
        place = beside.log_place(value)
        if place is not None:
            number, batch, kind, index = place
            found = (await self._entry(number))[batch]
            value = found.inserts[index].payload if kind == "inserts" else found.settles[index].result or b""
        if not own:
            return value
        key = beside.own_key(value)
        if key is None:
            return beside.bare(value)
        data = await self._bucket.get(key)
        if data is None:
            raise _gone(key, f"bytes of job {id}")
        if len(data) != beside.size_of(key):
            raise Damaged(f"{key}, which holds bytes of job {id}, has {len(data)} bytes; try again")
        return data

    async def _entry(self, number: int) -> list[Batch]:
        if number not in self._entries:
            read = await self._log.read(number)
            if read is None:
                raise _gone(log_key(number), "payloads of living jobs")
            batches = [batched.batch() for batched in read.entry.batches]
            self._entries[number] = batches
            while len(self._entries) > KEPT_ENTRIES:
                self._entries.popitem(last=False)
            return batches
        self._entries.move_to_end(number)
        return self._entries[number]

    # -- the ended

    async def write_segment(self, name: str, replica: Replica, records: Sequence[Record]) -> Segment:
        """Write ended jobs to `done/`, with everything that belongs to them."""
        jobs = replica.jobs
        whole = [copy(record) for record in records]
        own = [key for r in records for value in (r.payload, r.result) if (key := beside.own_key(value)) is not None]
        await self.fill(whole, own=False)
        ids = sorted(record.id for record in records)
        ended = Ended(
            VERSION,
            pack(whole),
            {id: [piece.printed for piece in jobs.printed[id]] for id in ids if id in jobs.printed},
            {id: jobs.nonces[id] for id in ids if id in jobs.nonces},
        )
        await self._bucket.put_surely(f"done/{name}", encode(ended))
        times = [record.expires_at for record in records if record.expires_at is not None]
        return Segment(
            name,
            replica.position,
            [(record.seq, record.fence) for record in records],
            ids[0],
            ids[-1],
            max(times) if len(times) == len(records) else None,
            own,
        )

    async def _segment(self, name: str) -> _Loaded:
        if name not in self._segments:
            found = await self._log.fetch(f"done/{name}", Ended)
            if found is None:
                raise _gone(f"done/{name}", "ended jobs")
            self._segments[name] = _Loaded(found[0])
            while len(self._segments) > KEPT_SEGMENTS:
                self._segments.popitem(last=False)
        self._segments.move_to_end(name)
        return self._segments[name]

    async def ended(self, id: str) -> tuple[str, Record, int, list[Printed]] | None:
        """An ended job that has left the state: its segment, itself, its nonce and its output."""
        for archived in self._likely(id):
            loaded = await self._segment(archived.name)
            record = loaded.by_id.get(id)
            if record is not None and record.seq not in archived.hidden:
                found = copy(record)
                return archived.name, found, loaded.nonces.get(id, 0), loaded.printed.get(id, [])
        return None

    def _likely(self, id: str) -> Iterator[Archived]:
        for archived in reversed(list(self._log.replica.archived.values())):
            if archived.first <= id <= archived.last:
                yield archived

    async def newest_ended(self, where: Where, before: int | None, limit: int) -> list[Record]:
        """The ended jobs that match, newest first; at most `limit`."""
        found: list[Record] = []
        for archived in sorted(self._log.replica.archived.values(), key=lambda each: each.high, reverse=True):
            if len(found) >= limit and archived.high < found[limit - 1].seq:
                break
            if before is not None and archived.low >= before:
                continue
            loaded = await self._segment(archived.name)
            found += _matching(loaded.newest, archived.hidden, where, before)
            found.sort(key=lambda record: record.seq, reverse=True)
        return [copy(record) for record in found[:limit]]


def _matching(records: Iterable[Record], hidden: set[int], where: Where, before: int | None) -> list[Record]:
    return [
        record
        for record in records
        if (before is None or record.seq < before) and record.seq not in hidden and matches(record, where)
    ]


def _gone(key: str, what: str) -> Gone:
    return Gone(f"{key}, which holds {what}, is gone: does a lifecycle rule of the bucket remove objects?")
