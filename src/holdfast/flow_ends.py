"""What follows when jobs of flows end: others are freed, or end unrun; the flow ends when all have.

1. A job's end is told by a record in the same commit (`Settlement.tell`). Whoever finds it frees what waited, page by
   page, and removes the record last. Each step does no harm when it is made again, so a crash between any two is mended
   by the next worker that looks.
2. A job waits for one parent at a time, the last of those that have not ended; freed from it, it looks at all of them.
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
from .job import TERMINAL, Change, Patch, Record, State, Where
from .lifecycle import retry as new_life

if TYPE_CHECKING:
    from .app import Holdfast

TASK, QUEUE = "flow", "flows"
ENDED = "ended"
"""The kind of record that tells of an end."""
MAKING = "flow:making"
"""What a flow waits for until all of its jobs are stored."""
PAGE = 1000
ABANDONED = 3600.0
"""Seconds after which a flow that was never begun is removed."""
NOT_RUN = "not run: "
SHOWN = 3
"""Failed jobs that a flow's error names."""


class About(msgspec.Struct, omit_defaults=True):
    """What a flow's own job has as its payload."""

    name: str
    jobs: int


class FlowEnds:
    """The half of `Flows` that workers use."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    # -- the jobs of a flow

    async def _count(self, own: Record) -> int:
        kept = (await self._app.session.store.records(counting(own.id))).get("jobs")
        if kept is not None:
            return msgspec.json.decode(kept.value, type=int)
        return msgspec.json.decode(own.payload, type=About).jobs

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
        told = set(await store.records(ENDED))
        left = told if seen is None else told.intersection(seen)
        if left:
            await self.free(sorted(left))
        making = await store.find(Where(waits=MAKING), None, PAGE)
        if making.records:
            old = await store.now() - int(ABANDONED * 1_000_000)
            for own in making.records:
                if own.created_at < old:
                    await self._forget(own.id, msgspec.json.decode(own.payload, type=About).jobs)
        return told - left

    async def free(self, ids: Sequence[str]) -> None:
        """Deal with ends that were told: of jobs, and of the making of flows."""
        waiting = list(ids)
        while waiting:
            some, waiting = waiting[:PAGE], waiting[PAGE:]
            done: list[str] = []
            flows: dict[str, None] = {}
            for id, record in zip(some, await self._app.session.store.get(some), strict=True):
                if record is not None and record.task == TASK:
                    if record.waits == MAKING:
                        continue  # not begun yet, or never: `repair` removes it
                    waiting += await self._free_those(beginning_of(id))
                elif record is None or record.state in TERMINAL:
                    waiting += await self._free_those(end_of(id))
                    flows[id.rpartition(".")[0]] = None
                done.append(id)
            for flow in flows:
                await self._gather(flow)
            await asyncio.gather(*(self._app.put_record(ENDED, id, None) for id in done))

    async def _free_those(self, what: str) -> list[str]:
        """Free all who wait for one thing; the jobs that thereby end unrun."""
        ended: list[str] = []
        while True:
            found = await self._app.session.store.find(Where(waits=what), None, PAGE)
            if not found.records:
                return ended
            decided = await self._decide(found.records)
            changes = [change for change in decided if not _stays(change, what)]  # it may have been retried since
            written = await self._change(changes)
            ended += [c.id for c, done in zip(changes, written, strict=True) if done and _ends(c)]
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
        return await self._app.session.commit.change(list(changes)) if changes else []

    # -- jobs that wait for all others, and the flow itself

    async def _gather(self, flow: str) -> None:
        """Free the jobs of a flow that wait for all others; end the flow where all have ended."""
        store = self._app.session.store
        gathering = (await store.find(Where(waits=all_of(flow)), None, PAGE)).records
        [own] = await store.get([flow])
        if not gathering or own is None:
            return
        planned, jobs = msgspec.json.decode(own.payload, type=About).jobs, await self._count(own)
        for record in gathering:
            extra = extras.read(record.extra)
            enough = extra.all_but or 0
            before = jobs if record.task == TASK else number_in(flow, record.id)
            left, upto = await self._left(flow, (range(extra.upto, before), range(max(before, planned), jobs)), enough)
            patch = Patch(state=State.QUEUED)
            if left > enough:
                if upto < extra.upto + PAGE:
                    continue
                patch = Patch(extra=extras.write(msgspec.structs.replace(extra, upto=upto)))
            elif record.task == TASK:
                await self._end(record, jobs)
                continue
            await self._change([Change(record.id, record.state, record.fence, patch)])

    async def _left(self, flow: str, spans: Sequence[range], enough: int) -> tuple[int, int]:
        """How many jobs have not ended (counted until there are more than enough), and up to which all have."""
        left, upto = 0, spans[0].start
        for span in spans:
            for at in range(span.start, span.stop, PAGE):
                numbers = range(at, min(span.stop, at + PAGE))
                found = await self._app.session.store.get([member(flow, number) for number in numbers])
                for number, record in zip(numbers, found, strict=True):
                    if record is not None and record.state not in TERMINAL:
                        left += 1
                    elif not left and span is spans[0]:
                        upto = number + 1
                if left > enough:
                    return left, upto
        return left, upto

    async def _end(self, own: Record, jobs: int) -> None:
        """All jobs of a flow have ended: let their retention begin, then end the flow."""
        keep = self._app.session.rules.retention
        counts: dict[str, int] = {}
        failed: list[Record] = []
        async for record in self._members(own.id, jobs):
            counts[record.state] = counts.get(record.state, 0) + 1
            if _failed(record):
                failed.append(record)
        await self._keep(own.id, jobs, keep)
        error = None
        if failed:
            names = "; ".join(f"{r.id} ({r.task}): {r.error}" for r in failed[:SHOWN])
            error = f"{len(failed)} of {jobs} jobs died or were not run: {names}"
        state = State.DEAD if failed else State.CANCELLED if own.meta.get("cancelled") else State.SUCCEEDED
        about = msgspec.json.encode(About(msgspec.json.decode(own.payload, type=About).name, jobs))
        patch = Patch(
            state=state,
            error=error or ("the flow was cancelled" if state == State.CANCELLED else None),
            result=msgspec.json.encode(counts),
            payload=about,
            keep=None if state == State.DEAD else keep,
        )
        if (await self._change([Change(own.id, own.state, own.fence, patch)]))[0]:
            await self._app.put_record(counting(own.id), "jobs", None)

    async def _keep(self, flow: str, jobs: int, keep: float | None) -> None:
        """Set how long the ended jobs of a flow are kept from now on; the dead stay until they are purged."""
        changes: list[Change] = []
        async for record in self._members(flow, jobs):
            if record.state in TERMINAL and (record.state != State.DEAD or keep is None):
                changes.append(Change(record.id, record.state, record.fence, Patch(keep=keep)))
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
            results[number] = parent.result if parent.state == State.SUCCEEDED else None
        return filled(record.payload, results)


def decide(child: Record, extra: Extra, parents: dict[str, Record], now: int) -> Change:
    """What becomes of a blocked job, given its parents as they are: it is freed, waits for another, or ends unrun."""
    flow, waits = extra.flow or "", None
    for number, on_dead in extra.after:
        id = member(flow, number)
        parent = parents.get(id)
        if parent is not None and parent.state not in TERMINAL:
            waits = end_of(id)
            continue
        well = parent is not None and parent.state == State.SUCCEEDED
        name = f"{id} ({parent.task})" if parent is not None else id
        if well and on_dead == "compensate":
            return _unrun(child, f"{NOT_RUN}not needed, {name} succeeded")
        if not well and on_dead == "fail":
            how = f"is {parent.state}" if parent is not None else "is gone"
            return _unrun(child, f"{NOT_RUN}{name} {how}")
    if waits is not None:
        return Change(child.id, child.state, child.fence, Patch(state=State.BLOCKED, waits=waits))
    state = State.SCHEDULED if child.run_at > now else State.QUEUED
    return Change(child.id, child.state, child.fence, Patch(state=state))


def _unrun(child: Record, why: str) -> Change:
    return Change(child.id, child.state, child.fence, Patch(state=State.CANCELLED, error=why, keep=None, tell=True))


def _failed(record: Record) -> bool:
    if record.state == State.DEAD:
        return not extras.read(record.extra).forgiven
    return (record.error or "").startswith(NOT_RUN) and not unneeded(record)


def unneeded(record: Record) -> bool:
    """Whether it compensates for something that did not happen."""
    return (record.error or "").startswith(f"{NOT_RUN}not needed")


def again(record: Record) -> Patch:
    """A new life for an ended job."""
    patch = new_life(record).patch
    assert patch is not None
    return patch


def _stays(change: Change, what: str) -> bool:
    return change.patch is not None and change.patch.waits == what


def _ends(change: Change) -> bool:
    return change.patch is not None and change.patch.state in TERMINAL


def gathering(flow: str) -> bytes | None:
    """What a flow's own job has to know."""
    return extras.write(Extra(flow=flow, all_but=0))


def counting(flow: str) -> str:
    """The kind of record that counts the jobs of a flow that has grown."""
    return f"flow:{flow}"
