"""Processes ends of jobs in flows: dependents are released, or end unrun; the flow ends after all jobs.

1. A job's end is recorded in the same commit (`Settlement.record_end`). The process that finds the record releases the
   dependents, page by page, and removes the record last. Each step is idempotent, so after a crash the next worker
   completes them.
2. A job waits for one parent at a time, the last of those that have not ended; released from it, all of its parents are
   checked. After a job is made to wait for another parent, that parent is checked once more for an end; the record
   names the parent beforehand, so that another worker can take over: a process that removes the record has
   processed all that it names. A late change, decided before another worker's, is rejected by what the job waits for.
3. The end of a job outside of the flow is not recorded. Before a job is made to wait for it, an `awaited` record names
   the parent; every worker checks such parents until they have ended (`release_awaited`). It is written again after
   that: a worker that found no waiting job may have removed it.
4. Jobs of a flow are kept until it has ended, and for their retention from then on (`completion.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from ..client.session import Session
from ..codec import filled, numbers_in
from ..core import internal as extras
from ..core.errors import HoldfastError, InvalidJob
from ..core.flow_rules import CANCELLING, cancelling, decide, member, parents_of
from ..core.follow_ups import owed
from ..core.job import TERMINAL, NewJob, Record, State
from ..core.lifecycle import cancel
from ..core.operations import Change, Patch, Where
from ..core.waiting import Waiting, beginning_of, end_of
from ..store.group_commit import guard
from ..store.protocol import Versioned, records_of
from ..tasks.registry import Registry
from .completion import Completion
from .creation import AWAITED, ENDED, Insert, MakingWatch, Pending, give_up, pending, remove_ended
from .members import PAGE, FlowJobs
from .small_flows import SmallFlows

logger = logging.getLogger("holdfast")
ENDS_AT_ONCE = 50
"""Ends that are processed in parallel."""
_NONE, _JUST_RECORDED = Versioned(b"{}", 0), Versioned(b"{}", -1)
"""Versions of a record that does not exist, and of one that was written since the records were read."""
_LEFT = b""
"""No record has this value: a record that other processes also wrote is processed later."""


class Release:
    """Processes recorded ends: the part of flows that workers use."""

    def __init__(self, session: Session, registry: Registry, insert: Insert) -> None:
        self._session = session
        self._insert = insert
        self._jobs = FlowJobs(session)
        self._completion = Completion(session, registry)
        self._small_flows = SmallFlows(session, self._completion)
        self.reopen = self._completion.reopen

    async def write_pending(self, id: str, change: Callable[[Pending], Pending]) -> None:
        """Write pending work for a flow: from then on, any worker does it."""
        while True:
            kept = (await records_of(self._session.store, ENDED)).get(id)
            value = msgspec.json.encode(change(pending(kept)))
            if await self._session.store.put_record(ENDED, id, value, 0 if kept is None else kept.version):
                return

    async def process_now(self, ids: Sequence[str]) -> None:
        """Do the pending work for these at once; if that fails, workers do it later."""
        try:
            await self.free(ids)
        except Exception as error:  # noqa: BLE001  # a driver may raise anything; the pending work is written
            logger.warning(
                "the jobs that wait for job %s could not be released now; a worker will release them: %s: %s",
                ids[0],
                type(error).__name__,
                error,
            )
            for id in ids:
                self._session.commit.notify_end(id)

    # -- release dependents of jobs that have ended

    async def repair(
        self,
        seen: Collection[str] | None = None,
        watch: MakingWatch | None = None,
        records: dict[str, Versioned] | None = None,
    ) -> set[str]:
        """Complete releases of other processes, and abandon flows that were never started; returns the recorded ends.

        `seen`: those of an earlier call; other processes may be working on the rest. `records`: those of all ends, if
        they were read just now.
        """
        records = await records_of(self._session.store, ENDED) if records is None else records
        recorded = set(records)
        left = recorded if seen is None else recorded.intersection(seen)
        if left:
            await self.free(sorted(left), records)
            for record in await self._jobs.get(left):
                if not extras.is_flow(record) and record.state not in TERMINAL:  # retried since: recorded again
                    await self._remove_record(record.id, records)
        abandoned = [] if watch is None else watch.abandoned(records)
        for id in abandoned:
            if (making := pending(records[id]).making) is not None:
                await give_up(self._session, id, making)
        if abandoned:
            await self.free(abandoned)
        return recorded - left

    async def free(self, ids: Sequence[str], recorded: dict[str, Versioned] | None = None) -> None:
        """Process recorded ends of jobs and flows, and announcements of flows."""
        simple = await self._small_flows.free(ids, recorded or {})
        if waiting := [id for id in ids if id not in simple]:
            await self._free(waiting, recorded)

    async def _await_outside(self, ids: Collection[str]) -> None:
        """Write that jobs are about to wait for these. Also if that is written: its version shows a later wait."""
        if ids:
            await asyncio.gather(*(self._session.store.put_record(AWAITED, id, b"{}") for id in ids))
            self._session.watched.changed(AWAITED)

    async def release_awaited(self, awaited: Mapping[str, Versioned]) -> bool:
        """Release the jobs that wait for these parents outside of their flows; returns whether a parent had ended."""
        before = {record.id: record for record in await self._jobs.get(awaited)}
        ended = [id for id in sorted(awaited) if id not in before or before[id].state in TERMINAL]
        if not ended:
            return False
        await self._free(ended, None)
        after = {record.id: record for record in await self._jobs.get(ended)}
        for id in ended:
            if _life(before.get(id)) == _life(after.get(id)):  # else it was retried, and jobs may wait for it again
                await self._session.store.put_record(AWAITED, id, None, awaited[id].version)
        return True

    async def drop_unawaited(self, id: str, kept: Versioned) -> None:
        """Remove the record of an awaited parent if no job waits for it."""
        if not (await self._session.store.find(Where(waiting_for=end_of(id)), None, 1)).records:
            await self._session.store.put_record(AWAITED, id, None, kept.version)

    async def _free(self, ids: Sequence[str], recorded: dict[str, Versioned] | None) -> None:
        waiting, done = list(ids), list[str]()
        if recorded is None:
            recorded = await records_of(self._session.store, ENDED)  # before any of these jobs is read
        ends: dict[str, tuple[int, int]] = {}
        flows: dict[str, None] = {}
        mentioned, unfinished = set(ids), set[str]()
        while waiting:
            some, waiting = waiting[:ENDS_AT_ONCE], waiting[ENDS_AT_ONCE:]
            also = {id: pending(recorded.get(id)).also for id in some}  # by a process that may have died since
            await self._await_outside({other for id, others in also.items() for other in _outside(id, others)})
            waiting += sorted(set[str]().union(*also.values()) - mentioned)
            mentioned.update(*also.values())
            awaited: dict[str, Waiting] = {}
            flow_of = {id: id.rpartition(".")[0] or id for id in some}  # a flow's own id has no dot
            found = {record.id: record for record in await self._jobs.get({*some, *flow_of.values()})}
            unstored = await self.store_follow_ups(list(found.values()))
            for id, flow in flow_of.items():
                own, record, left = found.get(flow), found.get(id), pending(recorded.get(flow))
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
                elif id in unstored:
                    continue  # it stays recorded, and the next check tries again
                elif record is None or record.state in TERMINAL:
                    awaited[id] = end_of(id)
                    flows[flow] = None
                    if record is not None:
                        ends[id] = record.reset_count, record.fence
                else:
                    continue  # it continues, and its next end is recorded
                done.append(id)
            ended_next, left_over = await self._free_dependents(awaited, recorded)
            waiting += ended_next
            unfinished |= left_over
        ended = [flow for flow in flows if await self._completion.gather(flow)]
        new = {id: end for id, end in ends.items() if _version(recorded, id) < 0}
        recorded |= await self._recorded_since(new, recorded)
        done = [id for id in done if id not in unfinished]
        for start in range(0, len(done), PAGE):
            await asyncio.gather(*(self._remove_record(id, recorded) for id in done[start : start + PAGE]))
        if ended:
            await self.free(ended)

    async def store_follow_ups(self, ended: Sequence[Record]) -> dict[str, BaseException]:
        """Store the follow-ups of these jobs, if their ends are recorded; returns the errors, by the ids of the jobs.

        Until then the job is kept. The same end gives the same job, so storing it again changes nothing, unless that
        job was removed: so the records are read after the jobs, and just before.
        """
        owing = [(record, job) for record in ended if (job := owed(record)) is not None]
        if not owing:
            return {}
        recorded = await records_of(self._session.store, ENDED)
        owing = [(record, job) for record, job in owing if record.id in recorded]
        request = guard.set(None)  # a follow-up was checked with its job: the current request did not write it
        try:
            stored = await asyncio.gather(*(self._store(job) for _, job in owing), return_exceptions=True)
        finally:
            guard.reset(request)
        failed: dict[str, BaseException] = {}
        kept: list[Change] = []
        for (record, job), answer in zip(owing, stored, strict=True):
            if isinstance(answer, BaseException):
                message = "job %s: its follow-up %s was not stored, a worker will retry: %s"
                logger.warning(message, record.id, job.id, answer)
                failed[record.id] = answer
            elif record.state == State.SUCCEEDED and record.expires_at is None:
                keep = self._completion.keeps(record, self._session.rules.retention)
                kept.append(Change(record.id, record.state, record.fence, Patch(keep=keep), expected_seq=record.seq))
        await self._jobs.change(kept)
        return failed

    async def _store(self, job: NewJob) -> None:
        [answer] = await self._insert([job])
        if isinstance(answer, HoldfastError):
            raise answer

    async def _deleted(self, own: Record | None, flow: str, jobs: int) -> bool:
        """Delete a flow and its jobs; False if it was retried since."""
        if own is not None:
            gone = own.state in TERMINAL and (await self._jobs.change([Change(own.id, own.state, own.fence, None)]))[0]
            if not gone and await self._jobs.get([flow]):
                return False
        await remove_ended(self._session, flow, jobs)
        return True

    async def _cancel_jobs(self, own: Record) -> list[str]:
        """Cancel all unfinished jobs of a flow, including those added meanwhile; returns those that ended."""
        rules, ended = self._session.rules, list[str]()
        if not cancelling(own.meta):
            mark = Change(own.id, own.state, own.fence, Patch(meta=CANCELLING))
            if not (await self._jobs.change([mark]))[0]:
                return ended  # as the flow has
        while True:
            jobs = await self._jobs.count(own)
            cancels = [cancel(r, rules) async for r in self._jobs.members(own.id, jobs) if r.state not in TERMINAL]
            changes = [change for change in cancels if change is not None]
            if not changes:
                return ended
            written = await self._jobs.change(changes)
            ended += [change.id for change, done in zip(changes, written, strict=True) if done and _ends(change)]

    async def _remove_record(self, id: str, recorded: Mapping[str, Versioned]) -> None:
        """Remove the record of a processed end. A newer end of the same job, after a retry, stays."""
        if (version := _version(recorded, id)) >= 0:
            await self._session.store.put_record(ENDED, id, None, version)

    async def _recorded_since(
        self, ends: Mapping[str, tuple[int, int]], recorded: Mapping[str, Versioned]
    ) -> dict[str, Versioned]:
        """The records of ends that were written here, if they are unchanged.

        A job is read after its record: if its reset_count is the same, the record is of no later end.
        """
        if not ends:
            return {}
        now = await records_of(self._session.store, ENDED)
        ours = [id for id in ends if id in now and now[id].value == recorded.get(id, _JUST_RECORDED).value]
        found = await self._jobs.get(ours)
        return {r.id: now[r.id] for r in found if r.state in TERMINAL and (r.reset_count, r.fence) == ends[r.id]}

    async def _mention(self, id: str, others: set[str], recorded: dict[str, Versioned]) -> None:
        """Write into the record of an end that other jobs must be processed with it."""
        put, known = self._session.store.put_record, recorded.get(id, _JUST_RECORDED)
        if others.issubset(pending(known).also):
            return
        kept = known if known.version >= 0 else await self._kept(id)
        ours = kept.value == known.value
        while not await put(ENDED, id, value := msgspec.json.encode(mentioning(pending(kept), others)), kept.version):
            kept, ours = await self._kept(id), False
        # A record that was written again, or by other processes too, is processed later.
        recorded[id] = Versioned(value if ours else _LEFT, _JUST_RECORDED.version)

    async def _kept(self, id: str) -> Versioned:
        return (await records_of(self._session.store, ENDED)).get(id, _NONE)

    async def _free_dependents(
        self, awaited: Mapping[str, Waiting], recorded: dict[str, Versioned]
    ) -> tuple[list[str], set[str]]:
        """Release all jobs that wait for these; returns the ended jobs that must be processed next.

        And those of these whose dependents another process releases: they stay recorded, because it may crash.
        """
        find, ended, others_are_at_it = self._session.store.find, list[str](), set[str]()
        while awaited:
            size, ended_ids = PAGE // len(awaited), {what: id for id, what in awaited.items()}
            pages = await asyncio.gather(*(find(Where(waiting_for=what), None, size) for what in ended_ids))
            children = {child.id: child for page in pages for child in page.records}
            found_by = {child.id: what for what, page in zip(ended_ids, pages, strict=True) for child in page.records}
            changes = await self._decide(list(children.values()))
            others: dict[str, set[str]] = {}
            outside: set[str] = set()
            for change in changes:
                if (waiting_for := _waiting_for(change)) is not None:
                    if (parent := _outside_parent(children[change.id], waiting_for)) is not None:
                        outside.add(parent)
                    others.setdefault(ended_ids[found_by[change.id]], set()).add(waiting_for.name)
            await asyncio.gather(*(self._mention(id, its, recorded) for id, its in others.items()))
            await self._await_outside(outside)
            written = [change for change, done in zip(changes, await self._jobs.change(changes), strict=True) if done]
            unrun = [children[change.id] for change in written if _ends(change)]
            again = await self._taken_back(unrun) if unrun else set[str]()
            ended += [child.id for child in unrun if child.id not in again]
            parents = set[str]().union(*others.values())
            unfinished = {record.id for record in await self._jobs.get(parents) if record.state not in TERMINAL}
            await self._await_outside(outside & unfinished)
            ended += sorted(parents - unfinished)
            freed = {found_by[change.id] for change in written}
            full = [what for what, page in zip(ended_ids, pages, strict=True) if page.cursor is not None]
            others_are_at_it.update(ended_ids[what] for what in full if what not in freed)
            more = [what for what in full if what in freed] + [found_by[id] for id in again]
            awaited = {ended_ids[what]: what for what in more}
        return ended, others_are_at_it

    async def _taken_back(self, unrun: Sequence[Record]) -> set[str]:
        """Make jobs wait again that were ended unrun just after a retry of their parents; returns their ids.

        A change decided before a retry is not rejected after it, since a job that has not run has no new fence.
        """
        rightly = {change.id for change in await self._decide(unrun) if _ends(change)}
        wrong = [child for child in unrun if child.id not in rightly]
        outside = {name for c in wrong if (name := _outside_parent(c, c.waiting_for)) is not None}
        await self._await_outside(outside)
        back = [Patch(state=State.BLOCKED, waiting_for=c.waiting_for, error=None, extra=c.extra) for c in wrong]
        await self._jobs.change([Change(c.id, State.CANCELLED, c.fence, p) for c, p in zip(wrong, back, strict=True)])
        await self._await_outside(outside)
        for own in await self._jobs.get({extras.read(child.extra).flow or "" for child in wrong}):
            if own.state in TERMINAL:
                await self.reopen(own.id)
        return {child.id for child in wrong}

    async def _decide(self, children: Sequence[Record]) -> list[Change]:
        """The changes of jobs after a parent has ended, without those that stay as they are."""
        read = [(child, extras.read(child.extra)) for child in children]
        wanted = {id for _, extra in read for id, _ in parents_of(extra)}
        parents = {record.id: record for record in await self._jobs.get(wanted)}
        delayed = any(child.run_at > child.created_at for child in children)
        now = await self._session.store.now() if delayed else 0
        decided = [decide(child, extra, parents, now) for child, extra in read]
        return [
            change for child, change in zip(children, decided, strict=True) if _waiting_for(change) != child.waiting_for
        ]


async def with_results(session: Session, record: Record) -> bytes:
    """The payload of a job with its parents' results filled in."""
    parents = {parent.id: parent for parent in await FlowJobs(session).get(parents_in(record).values())}
    return fill_results(record, parents)


def parents_in(record: Record) -> dict[int, str]:
    """The jobs whose results its payload has placeholders for, by their numbers in the flow."""
    flow = extras.read(record.extra).flow or ""
    return {number: member(flow, number) for number in numbers_in(record.payload)}


def fill_results(record: Record, parents: Mapping[str, Record], *, partly: bool = False) -> bytes:
    """The payload of a job with the results of these jobs; `partly`: only of those that have ended."""
    results: dict[int, bytes | None] = {}
    for number, id in parents_in(record).items():
        parent = parents.get(id)
        if parent is None:
            raise InvalidJob(f"job {record.id} needs the result of job {id}, which was deleted; enqueue the flow again")
        if parent.codec != "json":
            raise InvalidJob(
                f"job {record.id} needs the result of job {parent.id}, which has its own codec; only JSON results can"
                " be passed: remove the codec of its task, then enqueue the flow again"
            )
        if not partly or parent.state in TERMINAL:
            results[number] = parent.result if parent.state == State.SUCCEEDED else None
    return filled(record.payload, results)


def mentioning(left: Pending, ids: Iterable[str]) -> Pending:
    """The pending work, with other jobs to process."""
    return msgspec.structs.replace(left, also=tuple(sorted({*left.also, *ids})))


def _version(recorded: Mapping[str, Versioned], id: str) -> int:
    return recorded.get(id, _JUST_RECORDED).version


def _waiting_for(change: Change) -> Waiting | None:
    """What a job will wait for after the change."""
    waiting_for = None if change.patch is None else change.patch.waiting_for
    return waiting_for if isinstance(waiting_for, Waiting) else None


def _outside_parent(child: Record, waiting_for: Waiting | None) -> str | None:
    """The parent outside of its flow that a job waits for, if it does."""
    name = None if waiting_for is None or waiting_for.kind != "dependency" else waiting_for.name
    return name if name in dict(extras.read(child.extra).after_jobs) else None


def _outside(id: str, also: Iterable[str]) -> list[str]:
    """Those jobs that are not in the same flow as this one."""
    flow = id.rpartition(".")[0] or id
    return [other for other in also if other.rpartition(".")[0] != flow]


def _life(record: Record | None) -> tuple[str, int, int] | None:
    """Distinguishes two ends of a job; None: it was deleted."""
    return None if record is None else (record.state, record.reset_count, record.fence)


def _ends(change: Change) -> bool:
    return change.patch is not None and change.patch.state in TERMINAL
