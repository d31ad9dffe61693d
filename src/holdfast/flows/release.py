"""What follows when jobs of flows end: others are freed, or end unrun; the flow ends when all have.

1. A job's end is told by a record in the same commit (`Settlement.record_end`). Whoever finds it frees what waited, page by
   page, and removes the record last. Each step does no harm when it is made again, so a crash between any two is mended
   by the next worker that looks.
2. A job waits for one parent at a time, the last of those that have not ended; freed from it, it looks at all of them.
   Whoever makes it wait for another looks once more whether that one has ended meanwhile, and says beforehand in the
   record that it will, for whoever has to take over.
3. Jobs of a flow are kept until it has ended, and for as long as their retention says from then on
   (`completion.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from ..client.session import Session
from ..codec import filled, numbers_in
from ..core import internal as extras
from ..core.errors import InvalidJob
from ..core.flow_rules import CANCELLING, cancelling, decide, member
from ..core.job import TERMINAL, Record, State
from ..core.lifecycle import cancel
from ..core.operations import Change, Patch, Where
from ..core.waiting import Waiting, beginning_of, end_of
from ..store.protocol import Versioned, records_of
from ..tasks.registry import Registry
from .completion import Completion
from .creation import ENDED, MakingWatch, Pending, give_up, pending, remove_ended
from .glance import Glance
from .members import PAGE, FlowJobs

logger = logging.getLogger("holdfast")
ENDS_AT_ONCE = 50
"""Ends that are dealt with side by side."""
_NONE, _JUST_TOLD = Versioned(b"{}", 0), Versioned(b"{}", -1)
"""A record that is not there, and one that was written since the records were read: its version is not known."""
_LEFT = b""
"""No record has this value: one that others wrote too is left for a later look."""


class Release:
    """What follows from ends that were told: the half of flows that workers use."""

    def __init__(self, session: Session, registry: Registry) -> None:
        self._session = session
        self._jobs = FlowJobs(session)
        self._completion = Completion(session, registry)
        self._glance = Glance(session, self._completion)
        self.reopen = self._completion.reopen

    async def leave(self, id: str, change: Callable[[Pending], Pending]) -> None:
        """Write down what is left to do about a flow: from then on, any worker that looks does it."""
        while True:
            kept = (await records_of(self._session.store, ENDED)).get(id)
            value = msgspec.json.encode(change(pending(kept)))
            if await self._session.store.put_record(ENDED, id, value, 0 if kept is None else kept.version):
                return

    async def carry_on(self, ids: Sequence[str]) -> None:
        """Do at once what is decided, and written down, about these; where that fails, workers do it when they look."""
        try:
            await self.free(ids)
        except Exception as error:  # noqa: BLE001  # whatever a driver raises: what the caller asked for is written
            logger.warning("flow job %s: workers will process its end: %s: %s", ids[0], type(error).__name__, error)
            for id in ids:
                self._session.commit.tell_of_end(id)

    # -- free what waits for jobs that have ended

    async def repair(
        self,
        seen: Collection[str] | None = None,
        watch: MakingWatch | None = None,
        records: dict[str, Versioned] | None = None,
    ) -> set[str]:
        """Free what others should have freed, and give up flows that were never started; the ends that are told now.

        `seen`: those of an earlier look. Whoever was to deal with the others may be at it. `records`: those of all
        ends, where they were read just now.
        """
        records = await records_of(self._session.store, ENDED) if records is None else records
        told = set(records)
        left = told if seen is None else told.intersection(seen)
        if left:
            await self.free(sorted(left.union(*(pending(records[id]).also for id in left))), records)
            for record in await self._jobs.get(left):
                if not extras.is_flow(record) and record.state not in TERMINAL:  # retried since; it will tell again
                    await self._unsay(record.id, records)
        abandoned = [] if watch is None else watch.abandoned(records)
        for id in abandoned:
            if (making := pending(records[id]).making) is not None:
                await give_up(self._session, id, making)
        if abandoned:
            await self.free(abandoned)
        return told - left

    async def free(self, ids: Sequence[str], told: dict[str, Versioned] | None = None) -> None:
        """Deal with ends that were told: of jobs and flows, and of the making of flows."""
        simple = await self._glance.free(ids, told or {})
        waiting, done = [id for id in ids if id not in simple], list[str]()
        if not waiting:
            return
        if told is None:
            told = await records_of(self._session.store, ENDED)  # before any of these jobs is looked at
        ends: dict[str, tuple[int, int]] = {}
        flows: dict[str, None] = {}
        while waiting:
            some, waiting = waiting[:ENDS_AT_ONCE], waiting[ENDS_AT_ONCE:]
            awaited: dict[str, Waiting] = {}
            flow_of = {id: id.rpartition(".")[0] or id for id in some}  # a flow's own id has no dot
            found = {record.id: record for record in await self._jobs.get({*some, *flow_of.values()})}
            for id, flow in flow_of.items():
                own, record, left = found.get(flow), found.get(id), pending(told.get(flow))
                if own is None and left.making is not None:
                    continue  # not started yet, or never
                if left.delete is not None and await self._deleted(own, flow, left.delete):
                    own = record = None
                if record is not None and extras.is_flow(record):
                    if record.state not in TERMINAL and (left.cancel or cancelling(record.meta)):
                        waiting += await self._cancel_jobs(record)
                    if record.state not in TERMINAL or not await self._completion.close(id):
                        awaited[id] = beginning_of(id)
                        flows[id] = None
                elif record is None or record.state in TERMINAL:
                    awaited[id] = end_of(id)
                    flows[flow] = None
                    if record is not None:
                        ends[id] = record.reset_count, record.fence
                else:
                    continue  # it goes on, and will tell when it has ended
                done.append(id)
            waiting += await self._free_those(awaited, told)
        ended = [flow for flow in flows if await self._completion.gather(flow)]
        told |= await self._told_since({id: end for id, end in ends.items() if _version(told, id) < 0}, told)
        for start in range(0, len(done), PAGE):
            await asyncio.gather(*(self._unsay(id, told) for id in done[start : start + PAGE]))
        if ended:
            await self.free(ended)

    async def _deleted(self, own: Record | None, flow: str, jobs: int) -> bool:
        """Remove a flow, and its jobs; False where it goes on since it was to be deleted."""
        if own is not None:
            gone = own.state in TERMINAL and (await self._jobs.change([Change(own.id, own.state, own.fence, None)]))[0]
            if not gone and await self._jobs.get([flow]):
                return False
        await remove_ended(self._session, flow, jobs)
        return True

    async def _cancel_jobs(self, own: Record) -> list[str]:
        """Cancel every job of a flow that has not ended, and those that are added meanwhile; those that ended so."""
        rules, ended = self._session.rules, list[str]()
        if not cancelling(own.meta):
            mark = Change(own.id, own.state, own.fence, Patch(meta=CANCELLING))
            if not (await self._jobs.change([mark]))[0]:
                return ended  # as the flow has
        while True:
            jobs = await self._jobs.count(own)
            wishes = [cancel(r, rules) async for r in self._jobs.members(own.id, jobs) if r.state not in TERMINAL]
            changes = [wish for wish in wishes if wish is not None]
            if not changes:
                return ended
            written = await self._jobs.change(changes)
            ended += [change.id for change, done in zip(changes, written, strict=True) if done and _ends(change)]

    async def _unsay(self, id: str, told: Mapping[str, Versioned]) -> None:
        """An end is dealt with. One that was told again since, by a job that was retried, stays."""
        if (version := _version(told, id)) >= 0:
            await self._session.store.put_record(ENDED, id, None, version)

    async def _told_since(
        self, ends: Mapping[str, tuple[int, int]], told: Mapping[str, Versioned]
    ) -> dict[str, Versioned]:
        """The records of ends that were written here, where they still are what was written.

        A job is looked at after its record is read: if it has the same life, that record tells of no later end.
        """
        if not ends:
            return {}
        now = await records_of(self._session.store, ENDED)
        ours = [id for id in ends if id in now and now[id].value == told.get(id, _JUST_TOLD).value]
        found = await self._jobs.get(ours)
        return {r.id: now[r.id] for r in found if r.state in TERMINAL and (r.reset_count, r.fence) == ends[r.id]}

    async def _mention(self, id: str, others: set[str], told: dict[str, Versioned]) -> None:
        """Say in the record of an end that others are to be looked at with it."""
        put, known = self._session.store.put_record, told.get(id, _JUST_TOLD)
        if others.issubset(pending(known).also):
            return
        kept = known if known.version >= 0 else await self._kept(id)
        ours = kept.value == known.value
        while not await put(ENDED, id, value := msgspec.json.encode(mentioning(pending(kept), others)), kept.version):
            kept, ours = await self._kept(id), False
        # One that was told again, or that others are at too, is left for a later look.
        told[id] = Versioned(value if ours else _LEFT, _JUST_TOLD.version)

    async def _kept(self, id: str) -> Versioned:
        return (await records_of(self._session.store, ENDED)).get(id, _NONE)

    async def _free_those(self, awaited: Mapping[str, Waiting], told: dict[str, Versioned]) -> list[str]:
        """Free all who wait for these things, by who told of each; the ended jobs that are to be dealt with next."""
        find, ended = self._session.store.find, list[str]()
        while awaited:
            size, tellers = PAGE // len(awaited), {what: id for id, what in awaited.items()}
            pages = await asyncio.gather(*(find(Where(waiting_for=what), None, size) for what in tellers))
            children = {child.id: child for page in pages for child in page.records}
            found_by = {child.id: what for what, page in zip(tellers, pages, strict=True) for child in page.records}
            changes = await self._decide(list(children.values()))
            others: dict[str, set[str]] = {}
            for change in changes:
                if (waiting_for := _waiting_for(change)) is not None:
                    others.setdefault(tellers[found_by[change.id]], set()).add(waiting_for.name)
            await asyncio.gather(*(self._mention(id, its, told) for id, its in others.items()))
            written = [change for change, done in zip(changes, await self._jobs.change(changes), strict=True) if done]
            unrun = [children[change.id] for change in written if _ends(change)]
            again = await self._taken_back(unrun) if unrun else set[str]()
            ended += [child.id for child in unrun if child.id not in again]
            parents = set[str]().union(*others.values())
            ended += sorted(parents.difference(r.id for r in await self._jobs.get(parents) if r.state not in TERMINAL))
            freed = {found_by[change.id] for change in written}  # where none was, others are at it
            full = (what for what, page in zip(tellers, pages, strict=True) if page.cursor is not None)
            more = [what for what in full if what in freed] + [found_by[id] for id in again]
            awaited = {tellers[what]: what for what in more}
        return ended

    async def _taken_back(self, unrun: Sequence[Record]) -> set[str]:
        """Have those wait again that were ended unrun just after a retry of those before them; their ids.

        What was decided before a retry is not refused after it, since whoever has not run has no new fence.
        """
        rightly = {change.id for change in await self._decide(unrun) if _ends(change)}
        wrong = [child for child in unrun if child.id not in rightly]
        back = [Patch(state=State.BLOCKED, waiting_for=c.waiting_for, error=None, extra=c.extra) for c in wrong]
        await self._jobs.change([Change(c.id, State.CANCELLED, c.fence, p) for c, p in zip(wrong, back, strict=True)])
        for own in await self._jobs.get({extras.read(child.extra).flow or "" for child in wrong}):
            if own.state in TERMINAL:
                await self.reopen(own.id)
        return {child.id for child in wrong}

    async def _decide(self, children: Sequence[Record]) -> list[Change]:
        """What becomes of jobs now that a parent of theirs has ended, but for those that stay as they are."""
        read = [(child, extras.read(child.extra)) for child in children]
        wanted = {member(e.flow or "", number) for _, e in read for number, _ in e.after}
        parents = {record.id: record for record in await self._jobs.get(wanted)}
        delayed = any(child.run_at > child.created_at for child in children)
        now = await self._session.store.now() if delayed else 0
        decided = [decide(child, extra, parents, now) for child, extra in read]
        return [
            change for child, change in zip(children, decided, strict=True) if _waiting_for(change) != child.waiting_for
        ]


async def with_results(session: Session, record: Record) -> bytes:
    """The payload of a job with its parents' results in their places."""
    flow = extras.read(record.extra).flow or ""
    numbers = numbers_in(record.payload)
    found = {r.id: r for r in await FlowJobs(session).get(member(flow, number) for number in numbers)}
    results: dict[int, bytes | None] = {}
    for number in numbers:
        parent = found.get(member(flow, number))
        if parent is None:
            raise InvalidJob(f"job {member(flow, number)}, whose result it needs, was deleted")
        if parent.codec != "json":
            raise InvalidJob(f"job {parent.id}, whose result it needs, has its own codec")
        results[number] = parent.result if parent.state == State.SUCCEEDED else None
    return filled(record.payload, results)


def mentioning(left: Pending, ids: Iterable[str]) -> Pending:
    """What is left to do, and others to look at with it."""
    return msgspec.structs.replace(left, also=tuple(sorted({*left.also, *ids})))


def _version(told: Mapping[str, Versioned], id: str) -> int:
    return told.get(id, _JUST_TOLD).version


def _waiting_for(change: Change) -> Waiting | None:
    """What a job is to wait for from now on."""
    waiting_for = None if change.patch is None else change.patch.waiting_for
    return waiting_for if isinstance(waiting_for, Waiting) else None


def _ends(change: Change) -> bool:
    return change.patch is not None and change.patch.state in TERMINAL
