"""Reads the calls of schedules and waiting jobs, for the deploy check. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ..client.search import CHUNK, reading_from
from ..client.store_id import known_store_id
from ..codec.holes import MARK
from ..core import internal as extra
from ..core.damage import damage_of
from ..core.errors import InvalidJob
from ..core.follow_ups import jobs_in
from ..core.job import TERMINAL, WAITING, Record
from ..core.operations import CallsCursor, WaitingCall, WaitingCalls, Where
from ..core.validation import checked_cursor, checked_filter
from ..flows.release import fill_results, parents_in
from ..schedules.schedule import KIND, read
from ..store.protocol import Store, records_of
from ..webhooks.service import TASK as WEBHOOK_TASK

CALLS_BYTES = 4 * 2**20
"""Bytes of the calls of a page, with the results that are filled in, unless it has one job."""
PARENTS = 16
"""Jobs whose results a job takes that are read at once: each may have a result of a megabyte."""


async def waiting_calls(store: Store, queue: str | None, cursor: CallsCursor | None) -> WaitingCalls:
    """The next page; the first ones have the schedules."""
    where = Where(tuple(sorted(WAITING)), checked_filter(queue, "queue"))
    scheduled: list[WaitingCall] = []
    id = await known_store_id(store) if cursor is None else None
    begin, left = cursor or CallsCursor(after_schedule=""), CALLS_BYTES
    if begin.after_schedule is not None:
        scheduled, whole = await _scheduled(store, where.queue, begin.after_schedule)
        if not whole:
            return WaitingCalls(scheduled, CallsCursor(after_schedule=scheduled[-1].id), id)
        left -= sum(map(_size, scheduled))
    size = CHUNK
    while True:
        with reading_from(begin.jobs):
            found = await store.find(where, checked_cursor(begin.jobs), size)
        calls, fitting = await _calls(store, found.records, left)
        if fitting == len(found.records):
            more = None if found.cursor is None else CallsCursor(jobs=found.cursor)
            return WaitingCalls([*scheduled, *calls], more, id)
        size = fitting  # only the store makes cursors: read again as many as fit


async def _scheduled(store: Store, queue: str | None, after: str) -> tuple[list[WaitingCall], bool]:
    """The calls of the schedules after this one, as many as fit a page; and whether these are all."""
    calls: list[WaitingCall] = []
    left = CALLS_BYTES
    for name, record in sorted((await records_of(store, KIND)).items()):
        one = read(record.value) if name > after else None
        if one is None or queue not in (None, one.queue):
            continue
        call = WaitingCall(name, one.task, bytes(one.payload), schedule=True)
        left -= _size(call)
        if left < 0 and calls:
            return calls, False
        calls.append(call)
    return calls, True


async def _calls(store: Store, records: Sequence[Record], left: int) -> tuple[list[WaitingCall], int]:
    """The calls of the first of these jobs that fit into `left` bytes, at least of one; and how many jobs these are."""
    calls: list[WaitingCall] = []
    parents = _Parents(store)
    for number, record in enumerate(records):
        if record.task == WEBHOOK_TASK or extra.is_flow(record):
            continue
        its = await _of_job(record, parents)
        left -= sum(map(_size, its))
        if left < parents.size and calls:
            return calls, number
        calls += its
    return calls, len(records)


async def _of_job(record: Record, parents: _Parents) -> list[WaitingCall]:
    """The calls of a job and of its follow-ups."""
    if damaged := damage_of(record):
        text = f"its stored data cannot be decoded: {', '.join(damaged)}"
        return [WaitingCall(record.id, record.task, b"", broken=text)]
    call = WaitingCall(record.id, record.task, record.payload, record.codec)
    if record.extra is None:
        return [call]
    if extra.read(record.extra).holes:
        call = await _with_results(record, parents)
    return [call, *(WaitingCall(record.id, job.task, job.payload, follow_up=True) for job in jobs_in(record.extra))]


async def _with_results(record: Record, parents: _Parents) -> WaitingCall:
    """The call of a job with the results that exist; without them if they do not fit a page."""
    open_call = WaitingCall(record.id, record.task, record.payload, record.codec, takes_results=True, open=True)
    try:
        known = await parents.get(wanted := set(parents_in(record).values()))
        if known is None:
            return open_call
        sizes = [len(parent.result or b"") for parent in known.values()]
        repeated = record.payload.count(MARK.encode()) - len(sizes)  # placeholders for the same result
        if sum(sizes) + max(repeated, 0) * max(sizes, default=0) > CALLS_BYTES:
            return open_call
        payload = fill_results(record, known, partly=True)
    except InvalidJob as error:
        return WaitingCall(record.id, record.task, b"", takes_results=True, broken=str(error))
    unfinished = any(known[id].state not in TERMINAL for id in wanted)
    return msgspec.structs.replace(open_call, payload=payload, open=unfinished)


class _Parents:
    """The jobs whose results the jobs of a page take."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, Record] = {}
        self.size = 0
        """Bytes of the results that were read."""

    async def get(self, ids: Collection[str]) -> dict[str, Record] | None:
        """Those that exist; None if their results do not fit a page."""
        missing = sorted(id for id in ids if id not in self._found)
        before = self.size
        for start in range(0, len(missing), PARENTS):
            if self.size - before > CALLS_BYTES:
                return None
            for parent in await self._store.get(missing[start : start + PARENTS]):
                if parent is not None:
                    self._found[parent.id] = parent
                    self.size += len(parent.result or b"")
        return {id: self._found[id] for id in ids if id in self._found}


def _size(call: WaitingCall) -> int:
    return len(call.id) + len(call.task) + len(call.payload) + len(call.broken or "")
