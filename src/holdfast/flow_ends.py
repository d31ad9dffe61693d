"""What follows when jobs of flows end: others are freed, or end unrun; the flow ends when all have.

1. A job's end is told by a record in the same commit (`Settlement.tell`). Whoever finds it frees what waited, page by
   page, and removes the record last. Each step does no harm when it is made again, so a crash between any two is mended
   by the next worker that looks.
2. A job waits for one parent at a time, the last of those that have not ended; freed from it, it looks at all of them.
   Whoever makes it wait for another looks once more whether that one has ended meanwhile, and says beforehand in the
   record that it will, for whoever has to take over.
3. Jobs of a flow are kept until it has ended, and for as long as their retention says from then on
   (`flow_gathering.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from . import extra as extras
from .codec import filled, numbers_in
from .errors import InvalidJob
from .flow import beginning_of, end_of, member
from .flow_gathering import PAGE, UNKNOWN, FlowGathering, about_flow, counting
from .flow_rules import decide
from .job import TERMINAL, UNDECODABLE, Change, Patch, Record, State, Where
from .lifecycle import cancel
from .store.protocol import Versioned

TASK, QUEUE = "flow", "flows"
ENDED = "ended"
"""The kind of record that tells of an end."""
MAKING = "flow:making"
"""What a flow waits for until all of its jobs are stored."""
AT_ONCE = 50
"""Ends that are dealt with side by side."""
ABANDONED = 3600.0
"""Seconds after which a flow that was never begun is removed."""
_NONE, _FIRST, _NOT_OURS = Versioned(b"{}", 0), Versioned(b"{}", 1), -1
"""A record that is not there, as an end makes it where there was none, and the version of one that others wrote too."""


class FlowEnds(FlowGathering):
    """The half of `Flows` that workers use."""

    async def _forget(self, id: str, jobs: int) -> None:
        """Remove a flow that never began. Itself last: it is looked for until all of it is gone."""
        await self._remove_jobs(id, jobs)
        await self._change([Change(r.id, r.state, r.fence, None) for r in await self._get([id])])

    async def _remove_jobs(self, id: str, jobs: int) -> None:
        await self._change([Change(r.id, r.state, r.fence, None) async for r in self._members(id, jobs)])
        await self._app.put_record(ENDED, id, None)
        await self._app.put_record(counting(id), "jobs", None)

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
            await self.free(sorted(left.union(*(_mentioned(records[id]) for id in left))), records)
            for record in await self._get(left):
                if not extras.is_flow(record) and record.state not in TERMINAL:  # retried since; it will tell again
                    await self._unsay(record.id, records)
        making = await store.find(Where(waits=MAKING), None, PAGE)
        if making.records:
            old = await store.now() - int(ABANDONED * 1_000_000)
            for own in making.records:
                if own.created_at < old and about_flow(own) is not UNKNOWN:
                    await self._forget(own.id, about_flow(own).jobs)
        return told - left

    async def free(self, ids: Sequence[str], told: dict[str, Versioned] | None = None) -> None:
        """Deal with ends that were told: of jobs and flows, and of the making of flows."""
        store = self._app.session.store
        told = await store.records(ENDED) if told is None else told  # before any job is looked at
        waiting = list(ids)
        done: list[str] = []
        flows: dict[str, None] = {}
        while waiting:
            some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            awaited: dict[str, str] = {}
            flow_of = {id: id.rpartition(".")[0] or id for id in some}  # a flow's own id has no dot
            found = {record.id: record for record in await self._get({*some, *flow_of.values()})}
            for id, flow in flow_of.items():
                own, record = found.get(flow), found.get(id)
                if own is not None and own.waits == MAKING:
                    continue  # not begun yet, or never: `repair` removes it
                if record is not None and extras.is_flow(record):
                    if record.state not in TERMINAL and record.meta.get("cancelled"):
                        await self._cancel_jobs(record)
                    if record.state not in TERMINAL or not await self._close(id):
                        awaited[id] = beginning_of(id)
                        flows[id] = None
                elif record is None or record.state in TERMINAL:
                    awaited[id] = end_of(id)
                    flows[flow] = None
                else:
                    continue  # it goes on, and will tell when it has ended
                done.append(id)
            waiting += await self._free_those(awaited, told)
        ended = [flow for flow in flows if await self._gather(flow)]
        for start in range(0, len(done), PAGE):
            await asyncio.gather(*(self._unsay(id, told) for id in done[start : start + PAGE]))
        if ended:
            await self.free(ended)

    async def _cancel_jobs(self, own: Record) -> None:
        """Cancel every job of a flow that has not ended, and those that are added meanwhile."""
        rules = self._app.session.rules
        while True:
            jobs = await self._count(own)
            wishes = [cancel(r, rules) async for r in self._members(own.id, jobs) if r.state not in TERMINAL]
            changes = [wish for wish in wishes if wish is not None]
            if not changes:
                return
            await self._change(changes)

    async def _unsay(self, id: str, told: Mapping[str, Versioned]) -> None:
        """An end is dealt with. One that was told again since, by a job that was retried, stays."""
        await self._app.put_record(ENDED, id, None, told.get(id, _FIRST).version)

    async def _mention(self, id: str, others: set[str], told: dict[str, Versioned]) -> None:
        """Say in the record of an end that others are to be looked at with it."""
        put, kept, ours = self._app.put_record, told.get(id, _FIRST), True
        if others.issubset(_mentioned(kept)):
            return
        while not await put(ENDED, id, value := mentioning({*others, *_mentioned(kept)}), kept.version):
            kept, ours = (await self._app.session.store.records(ENDED)).get(id, _NONE), False
        # One that was told again, or that others are at too, is left for a later look.
        told[id] = Versioned(value, kept.version + 1 if ours else _NOT_OURS)

    async def _free_those(self, awaited: Mapping[str, str], told: dict[str, Versioned]) -> list[str]:
        """Free all who wait for these things, by who told of each; the ended jobs that are to be dealt with next."""
        find, ended = self._app.session.store.find, list[str]()
        while awaited:
            size, tellers = PAGE // len(awaited), {what: id for id, what in awaited.items()}
            pages = await asyncio.gather(*(find(Where(waits=what), None, size) for what in tellers))
            children = {child.id: child for page in pages for child in page.records}
            changes = await self._decide(list(children.values()))
            others: dict[str, set[str]] = {}
            for change in changes:
                if (waits := _waits(change)) is not None:
                    others.setdefault(tellers[children[change.id].waits or ""], set()).add(waits.removeprefix("job:"))
            await asyncio.gather(*(self._mention(id, its, told) for id, its in others.items()))
            written = [change for change, done in zip(changes, await self._change(changes), strict=True) if done]
            unrun = [children[change.id] for change in written if _ends(change)]
            again = await self._taken_back(unrun) if unrun else set[str]()
            ended += [child.id for child in unrun if child.id not in again]
            parents = set[str]().union(*others.values())
            ended += sorted(parents.difference(r.id for r in await self._get(parents) if r.state not in TERMINAL))
            freed = {children[change.id].waits for change in written}  # where none was, others are at it
            full = (what for what, page in zip(tellers, pages, strict=True) if page.cursor is not None)
            more = [what for what in full if what in freed] + [children[id].waits or "" for id in again]
            awaited = {tellers[what]: what for what in more}
        return ended

    async def _taken_back(self, unrun: Sequence[Record]) -> set[str]:
        """Have those wait again that were ended unrun just after a retry of those before them; their ids.

        What was decided before a retry is not refused after it, since whoever has not run has no new fence.
        """
        rightly = {change.id for change in await self._decide(unrun) if _ends(change)}
        wrong = [child for child in unrun if child.id not in rightly]
        back = [Patch(state=State.BLOCKED, waits=child.waits, error=None) for child in wrong]
        await self._change([Change(c.id, State.CANCELLED, c.fence, p) for c, p in zip(wrong, back, strict=True)])
        for own in await self._get({extras.read(child.extra).flow or "" for child in wrong}):
            if own.state in TERMINAL:
                await self._reopen(own.id)
        return {child.id for child in wrong}

    async def _decide(self, children: Sequence[Record]) -> list[Change]:
        """What becomes of jobs now that a parent of theirs has ended, but for those that stay as they are."""
        read = [(child, extras.read(child.extra)) for child in children]
        wanted = {member(e.flow or "", number) for _, e in read for number, _ in e.after}
        parents = {record.id: record for record in await self._get(wanted)}
        now = await self._app.session.store.now()
        decided = [decide(child, extra, parents, now) for child, extra in read]
        return [change for child, change in zip(children, decided, strict=True) if _waits(change) != child.waits]

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


def mentioning(ids: Iterable[str]) -> bytes:
    """A record that tells of an end, and of others to look at with it."""
    return msgspec.json.encode(sorted(ids))


def _mentioned(kept: Versioned) -> list[str]:
    try:
        found: Any = msgspec.json.decode(kept.value)
    except UNDECODABLE:
        return []
    return [id for id in cast("list[Any]", found) if isinstance(id, str)] if isinstance(found, list) else []


def _waits(change: Change) -> str | None:
    """What a job is to wait for from now on."""
    waits = None if change.patch is None else change.patch.waits
    return waits if isinstance(waits, str) else None


def _ends(change: Change) -> bool:
    return change.patch is not None and change.patch.state in TERMINAL
