"""What follows when jobs of flows end: others are freed, or end unrun; the flow ends when all have.

1. A job's end is told by a record in the same commit (`Settlement.tell`). Whoever finds it frees what waited, page by
   page, and removes the record last. Each step does no harm when it is made again, so a crash between any two is mended
   by the next worker that looks.
2. A job waits for one parent at a time, the last of those that have not ended; freed from it, it looks at all of them.
   Whoever makes it wait for another looks once more whether that one has ended meanwhile, and says beforehand in the
   record that it will, for whoever has to take over.
3. Jobs of a flow are kept until it has ended, and for as long as their retention says from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from . import extra as extras
from .codec import filled, numbers_in
from .errors import InvalidJob
from .extra import Extra
from .flow import all_of, beginning_of, end_of, member, number_in
from .flow_rules import decide, failed, freed
from .job import TERMINAL, Change, Patch, Record, State, Where
from .lifecycle import retry as new_life
from .store.protocol import Versioned

if TYPE_CHECKING:
    from .app import Holdfast

TASK, QUEUE = "flow", "flows"
ENDED = "ended"
"""The kind of record that tells of an end."""
MAKING = "flow:making"
"""What a flow waits for until all of its jobs are stored."""
PAGE = 1000
FEW = 100
"""Jobs that a look at whether all have ended begins with, and after which it is remembered how far that is so."""
ABANDONED = 3600.0
"""Seconds after which a flow that was never begun is removed."""
SHOWN = 3
"""Failed jobs that a flow's error names."""


class About(msgspec.Struct, omit_defaults=True):
    """What a flow's own job has as its payload."""

    name: str
    jobs: int
    """Those that it began with."""
    grown: int = 0
    """Those that were added while it ran, once it has ended."""


class FlowEnds:
    """The half of `Flows` that workers use."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    # -- the jobs of a flow

    async def _count(self, own: Record) -> int:
        kept = (await self._app.session.store.records(counting(own.id))).get("jobs")
        if kept is not None:
            return msgspec.json.decode(kept.value, type=int)
        about = _about(own)
        return about.jobs + about.grown

    async def _members(self, id: str, jobs: int) -> AsyncIterator[Record]:
        for start in range(0, jobs, PAGE):
            numbers = range(start, min(jobs, start + PAGE))
            for record in await self._app.session.store.get([member(id, number) for number in numbers]):
                if record is not None:
                    yield record

    async def _forget(self, id: str, jobs: int) -> None:
        """Remove a flow that never began; what waits for what is left of it is removed with it."""
        store, commit = self._app.session.store, self._app.session.commit
        for start in range(0, jobs, PAGE):
            found = await store.get([member(id, number) for number in range(start, min(jobs, start + PAGE))])
            await commit.change([Change(r.id, r.state, r.fence, None) for r in found if r is not None])
        [own] = await store.get([id])
        if own is not None:
            await commit.change([Change(id, own.state, own.fence, None)])
        await self._app.put_record(ENDED, id, None)

    # -- free what waits for jobs that have ended

    async def repair(self, seen: Collection[str] | None = None) -> set[str]:
        """Free what others should have freed, and remove flows that were never begun; the ends that are told now.

        `seen`: those of an earlier look. Whoever was to deal with the others may be at it.
        """
        store = self._app.session.store
        records = await store.records(ENDED)
        told = set(records)
        left = told if seen is None else told.intersection(seen)
        if left:
            await self.free(sorted(left.union(*(_mentioned(records[id]) for id in left))))
            for record in await self._get(left):
                if not extras.is_flow(record) and record.state not in TERMINAL:  # retried since; it will tell again
                    await self._app.put_record(ENDED, record.id, None, records[record.id].version)
        making = await store.find(Where(waits=MAKING), None, PAGE)
        if making.records:
            old = await store.now() - int(ABANDONED * 1_000_000)
            for own in making.records:
                if own.created_at < old:
                    await self._forget(own.id, _about(own).jobs)
        return told - left

    async def free(self, ids: Sequence[str]) -> None:
        """Deal with ends that were told: of jobs, and of the making of flows."""
        waiting = list(ids)
        done: list[str] = []
        flows: dict[str, None] = {}
        while waiting:
            some, waiting = waiting[:PAGE], waiting[PAGE:]
            for id, record in zip(some, await self._app.session.store.get(some), strict=True):
                if record is not None and extras.is_flow(record):
                    if record.waits == MAKING:
                        continue  # not begun yet, or never: `repair` removes it
                    flow, what = id, beginning_of(id)
                elif record is None or record.state in TERMINAL:
                    flow, what = id.rpartition(".")[0], end_of(id)
                else:
                    continue  # it goes on, and will tell when it has ended
                waiting += await self._free_those(id, what)
                flows[flow] = None
                done.append(id)
        for flow in flows:
            await self._gather(flow)
        for start in range(0, len(done), PAGE):
            some = done[start : start + PAGE]
            await asyncio.gather(*(self._app.put_record(ENDED, id, None) for id in some))

    async def _free_those(self, id: str, what: str) -> list[str]:
        """Free all who wait for one thing, which `id` told of; the ended jobs that are to be dealt with next."""
        ended: list[str] = []
        awaited: set[str] = set()
        while True:
            found = await self._app.session.store.find(Where(waits=what), None, PAGE)
            if not found.records:
                return ended
            decided = await self._decide(found.records)
            changes = [change for change in decided if not _stays(change, what)]  # it may have been retried since
            others = {waits.removeprefix("job:") for change in changes if (waits := _waits(change)) is not None}
            if not others <= awaited:
                awaited |= others
                await self._app.put_record(ENDED, id, mentioning(awaited))
            written = await self._change(changes)
            ended += [c.id for c, done in zip(changes, written, strict=True) if done and _ends(c)]
            ended += sorted(others - {record.id for record in await self._get(others) if record.state not in TERMINAL})
            if not any(written):
                return ended  # others are at it

    async def _decide(self, children: Sequence[Record]) -> list[Change]:
        """What becomes of jobs now that a parent of theirs has ended."""
        read = [(child, extras.read(child.extra)) for child in children]
        wanted = {member(e.flow or "", number) for _, e in read for number, _ in e.after}
        parents = {record.id: record for record in await self._get(wanted)}
        now = await self._app.session.store.now()
        return [decide(child, extra, parents, now) for child, extra in read]

    async def _get(self, ids: Iterable[str]) -> list[Record]:
        wanted, found = sorted(ids), list[Record]()
        for start in range(0, len(wanted), PAGE):
            found += [r for r in await self._app.session.store.get(wanted[start : start + PAGE]) if r is not None]
        return found

    async def _change(self, changes: Sequence[Change]) -> Sequence[bool]:
        written: list[bool] = []
        for start in range(0, len(changes), PAGE):
            written += await self._app.session.commit.change(changes[start : start + PAGE])
        return written

    # -- jobs that wait for all others, and the flow itself

    async def _gather(self, flow: str) -> None:
        """Free the jobs of a flow that wait for all others; end the flow where all have ended."""
        store = self._app.session.store
        gathering = (await store.find(Where(waits=all_of(flow)), None, PAGE)).records
        [own] = await store.get([flow])
        if not gathering or own is None:
            return
        for record in gathering:
            extra = extras.read(record.extra)
            jobs, left, upto = await self._looked(own, record, extra.upto)
            if left <= (extra.all_but or 0) and extra.upto:  # one of those behind may have been retried since
                jobs, left, upto = await self._looked(own, record, 0)
            if left <= (extra.all_but or 0):
                if record.id == flow:
                    await self._end(record, jobs)
                else:
                    await self._change([freed(record, await store.now())])
            elif not extra.upto <= upto < extra.upto + FEW:
                patch = Patch(extra=extras.write(msgspec.structs.replace(extra, upto=upto)))
                await self._change([Change(record.id, record.state, record.fence, patch)])

    async def _looked(self, own: Record, record: Record, start: int) -> tuple[int, int, int]:
        """The jobs of a flow, how many of those have not ended that one of it waits for, and up to which all have."""
        enough, planned = extras.read(record.extra).all_but or 0, _about(own).jobs
        jobs, before = -1, 0
        left = upto = 0
        while left <= enough and jobs != (now := await self._count(own)):  # none may be added while it is looked at
            jobs = now
            before = jobs if record.id == own.id else number_in(own.id, record.id)
            spans = (range(start, before), range(max(before, planned), jobs))
            left, upto = await self._left(own.id, spans, enough)
        return jobs, left, upto

    async def _left(self, flow: str, spans: Sequence[range], enough: int) -> tuple[int, int]:
        """How many jobs have not ended (counted until there are more than enough), and up to which all have."""
        left, upto, size = 0, spans[0].start, FEW
        if not enough:
            last = await self._get(member(flow, span[-1]) for span in spans if span)
            if any(record.state not in TERMINAL for record in last):
                return 1, upto  # as is mostly so, for jobs start in their order
        for span in spans:
            at = span.start
            while at < span.stop:
                numbers = range(at, min(span.stop, at + size))
                found = await self._app.session.store.get([member(flow, number) for number in numbers])
                for number, record in zip(numbers, found, strict=True):
                    if record is not None and record.state not in TERMINAL:
                        left += 1
                    elif not left and span is spans[0]:
                        upto = number + 1
                if left > enough:
                    return left, upto
                at, size = at + size, min(PAGE, 2 * size)
        return left, upto

    async def _end(self, own: Record, jobs: int) -> None:
        """All jobs of a flow have ended: let their retention begin, then end the flow."""
        keep = self._app.session.rules.retention
        counts: dict[str, int] = {}
        bad: list[Record] = []
        async for record in self._members(own.id, jobs):
            if record.state not in TERMINAL:
                return  # retried since
            counts[record.state] = counts.get(record.state, 0) + 1
            if failed(record):
                bad.append(record)
        await self._keep(own.id, jobs, keep)
        error = None
        if bad:
            names = "; ".join(f"{r.id} ({r.task}): {r.error}" for r in bad[:SHOWN])
            error = f"{len(bad)} of {jobs} jobs died or were not run: {names}"
        state = State.DEAD if bad else State.CANCELLED if own.meta.get("cancelled") else State.SUCCEEDED
        about = _about(own)
        patch = Patch(
            state=state,
            error=error or ("the flow was cancelled" if state == State.CANCELLED else None),
            result=msgspec.json.encode(counts),
            payload=msgspec.json.encode(About(about.name, about.jobs, jobs - about.jobs)),
            keep=None if state == State.DEAD else keep,
        )
        if (await self._change([Change(own.id, own.state, own.fence, patch)]))[0]:
            await self._app.put_record(counting(own.id), "jobs", None)

    async def _keep(self, flow: str, jobs: int, keep: float | None) -> None:
        """Set how long the ended jobs of a flow are kept from now on; the dead stay until they are purged."""
        changes: list[Change] = []
        async for record in self._members(flow, jobs):
            if record.state in TERMINAL and (record.state != State.DEAD or keep is None):
                task = self._app.registry.tasks.get(record.task)
                its = None if task is None or keep is None else task.retention
                patch = Patch(keep=keep if its is None else its)
                changes.append(Change(record.id, record.state, record.fence, patch))
            if len(changes) >= PAGE:
                await self._change(changes)
                changes = []
        await self._change(changes)

    # -- results

    async def with_results(self, record: Record) -> bytes:
        """The payload of a job with its parents' results in their places."""
        flow = extras.read(record.extra).flow or ""
        numbers = numbers_in(record.payload)
        found = {r.id: r for r in await self._get(member(flow, number) for number in numbers)}
        results: dict[int, bytes | None] = {}
        for number in numbers:
            parent = found.get(member(flow, number))
            if parent is None:
                raise InvalidJob(f"job {member(flow, number)}, whose result it needs, is gone")
            if parent.codec != "json":
                raise InvalidJob(f"job {parent.id}, whose result it needs, has a codec of its own")
            results[number] = parent.result if parent.state == State.SUCCEEDED else None
        return filled(record.payload, results)


def again(record: Record) -> Patch:
    """A new life for an ended job."""
    patch = new_life(record).patch
    assert patch is not None
    return patch


def _about(own: Record) -> About:
    return msgspec.json.decode(own.payload, type=About)


def mentioning(ids: Iterable[str]) -> bytes:
    """A record that tells of an end, and of others to look at with it."""
    return msgspec.json.encode(sorted(ids))


def _mentioned(kept: Versioned) -> list[str]:
    return list(msgspec.json.decode(kept.value))


def _waits(change: Change) -> str | None:
    """What a job is to wait for from now on."""
    waits = None if change.patch is None else change.patch.waits
    return waits if isinstance(waits, str) else None


def _stays(change: Change, what: str) -> bool:
    return _waits(change) == what


def _ends(change: Change) -> bool:
    return change.patch is not None and change.patch.state in TERMINAL


def gathering(flow: str) -> bytes | None:
    """What a flow's own job has to know."""
    return extras.write(Extra(flow=flow, all_but=0))


def counting(flow: str) -> str:
    """The kind of record that counts the jobs of a flow that has grown."""
    return f"flow:{flow}"
