"""The end of flows: jobs that wait for all others of their flow, the end of the flow, and its retention.

1. A flow ends after all of its jobs; then the retention of each begins (`close`). A retry makes the flow wait again in
   the commit that resets its jobs, and raises its `reset_count`, so an end that was decided before is rejected. Jobs
   added meanwhile are found by a check after the end.
2. The end of a flow is recorded in the same commit, as the ends of its jobs are (`release.py`), so that the next worker
   completes the work after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..client.session import Session
from ..core import internal as extras
from ..core.flow_rules import END_STATE, GOING_ON, FlowEnd, cancelling, end_of_flow, failed, freed, member, number_in
from ..core.job import TERMINAL, UNDECODABLE, Record, State
from ..core.lifecycle import retry as reset
from ..core.operations import Change, Patch, Where
from ..core.waiting import all_of
from ..store.protocol import records_of
from ..tasks.registry import Registry
from .members import PAGE, UNKNOWN, FlowJobs, about_flow, counting, gathering, number_kept

FEW = 100
"""Jobs that the first check reads, and after which the progress of the check is stored."""
ID_KEPT = 7 * 86400.0
"""Minimum seconds for which the id of an abandoned flow stays taken, so that a late start of it fails."""
FAILURES_NAMED = 3
"""Failed jobs that a flow's error names."""
ENDED_SO: dict[FlowEnd, str] = {
    "cancelled": "the flow was cancelled",
    "abandoned": "the flow never started: the process that enqueued it stopped before all jobs were stored",
}
"""The error of a flow with this end."""


class Completion:
    """Releases the jobs that wait for all others of their flow, and ends flows whose jobs have all ended."""

    def __init__(self, session: Session, registry: Registry) -> None:
        self._session = session
        self._registry = registry
        self._jobs = FlowJobs(session)

    async def gather(self, flow: str) -> bool:
        """Release the jobs of a flow that wait for all others. If all have ended, end it; returns whether it ended."""
        store, ended = self._session.store, False
        gathering = (await store.find(Where(waiting_for=all_of(flow)), None, PAGE)).records
        [own] = await store.get([flow])
        if not gathering or own is None or about_flow(own) is UNKNOWN:
            return False
        for record in gathering:
            extra = extras.read(record.extra)
            jobs, left, upto = await self._looked(own, record, extra.upto)
            if left <= (extra.allow_unfinished or 0) and extra.upto:  # a job before `upto` may have been retried since
                jobs, left, upto = await self._looked(own, record, 0)
            if left <= (extra.allow_unfinished or 0):
                if record.id == flow:
                    ended = await self._end(record, jobs)
                    if ended is None:
                        return await self.gather(flow)
                else:
                    await self._jobs.change([freed(record, await store.now())])
            elif not extra.upto <= upto < extra.upto + FEW:
                patch = Patch(extra=extras.write(msgspec.structs.replace(extra, upto=upto)))
                await self._jobs.change([Change(record.id, record.state, record.fence, patch)])
        return ended

    async def _looked(self, own: Record, record: Record, start: int) -> tuple[int, int, int]:
        """The jobs of a flow, how many that a job waits for have not ended, and the number up to which all have."""
        enough, planned = extras.read(record.extra).allow_unfinished or 0, about_flow(own).jobs
        jobs, number = -1, None if record.id == own.id else number_in(own.id, record.id)
        left = upto = 0
        while left <= enough and jobs != (now := await self._jobs.count(own)):  # jobs may be added during the check
            jobs = now
            before = jobs if number is None else number
            spans = (range(start, before), range(max(before, planned), jobs))
            left, upto = await self._left(own.id, number, spans, enough)
        return jobs, left, upto

    async def _left(self, flow: str, number: int | None, spans: Sequence[range], enough: int) -> tuple[int, int]:
        """How many jobs have not ended (counted up to more than `enough`), and the number up to which all have."""
        left, upto, size = 0, spans[0].start, FEW
        if not enough and await self._unended(flow, number, [span[-1] for span in spans if span]):
            return 1, upto  # the usual case, because jobs start in their order
        for span in spans:
            at = span.start
            while at < span.stop:
                numbers = range(at, min(span.stop, at + size))
                unended = await self._unended(flow, number, numbers)
                if span is spans[0] and not left:
                    upto = unended[0] if unended else numbers.stop
                left += len(unended)
                if left > enough:
                    return left, upto
                at, size = at + size, min(PAGE, 2 * size)
        return left, upto

    async def _unended(self, flow: str, number: int | None, numbers: Sequence[int]) -> list[int]:
        """Those of some jobs that have not ended, except those that can only start after the waiting one."""
        found = await self._session.store.get([member(flow, each) for each in numbers])
        return [
            each
            for each, record in zip(numbers, found, strict=True)
            if record is not None
            and record.state not in TERMINAL
            and not (number is not None and each > number and await self._comes_after(flow, record, number))
        ]

    async def _comes_after(self, flow: str, record: Record, number: int) -> bool:
        """Whether an added job can only start after the end of a job that waits for all."""
        level, seen = [record], set[int]()
        while level:
            above = {each for one in level for each, _ in extras.read(one.extra).after if each >= number} - seen
            seen |= above  # damaged jobs may form a cycle
            if number in above:
                return True
            level = [
                one for one in await self._jobs.get(member(flow, each) for each in above) if one.state == State.BLOCKED
            ]
            if any(extras.read(one.extra).allow_unfinished is not None for one in level):
                return True
        return False

    async def _end(self, own: Record, jobs: int) -> bool | None:
        """End a flow whose jobs have all ended, and record the end; `close` follows. None if the flow has changed."""
        counts: dict[str, int] = {}
        bad: list[Record] = []
        async for record in self._jobs.members(own.id, jobs):
            if record.state not in TERMINAL:
                return False  # retried since
            counts[record.state] = counts.get(record.state, 0) + 1
            if failed(record):
                bad.append(record)
        about = about_flow(own)
        ended = end_of_flow(failures=bool(bad), cancelled=cancelling(own.meta), abandoned=about.abandoned)
        error = ENDED_SO.get(ended)
        if bad:
            names = "; ".join(f"{r.id} ({r.task}): {r.error}" for r in bad[:FAILURES_NAMED])
            error = f"{len(bad)} of {jobs} jobs ended dead or did not run: {names}"
        [done] = await self._jobs.change([_end_of(own, ended, error, counts, jobs=jobs)])
        return done or None

    def ending(self, own: Record, members: Sequence[Record]) -> list[Change] | None:
        """The end of a flow whose jobs have all succeeded, and their retention, in one commit, with their ends.

        None if a later check is needed (`close`): another flow may have got a chosen id since the jobs were read. Also
        None if nothing is kept: a waiting caller must see the flow ended before it is removed.
        """
        keep = self._session.rules.retention
        keeps = [(record, self.keeps(record, keep)) for record in members]
        if about_flow(own).chosen or not keep or any(its == 0 for _, its in keeps):
            return None
        counts = {str(State.SUCCEEDED): len(members)}
        end = _end_of(own, "succeeded", None, counts, jobs=len(members), keep=keep)
        kept = [Change(r.id, r.state, r.fence, Patch(keep=its, handled=True), expected_seq=r.seq) for r, its in keeps]
        return [end, *kept]

    def keeps(self, record: Record, keep: float | None) -> float | None:
        """The retention of a job, if it is not that of its task."""
        task = self._registry.tasks.get(record.task)
        its = None if task is None or keep is None else task.retention
        return keep if its is None else its

    async def close(self, id: str) -> bool:
        """A flow has ended: start its retention and that of its jobs. False if it continues after a retry."""
        store, keep = self._session.store, self._session.rules.retention
        kept = (await records_of(store, counting(id))).get("jobs")
        [own] = await store.get([id])
        if own is None or own.state not in TERMINAL:
            return own is None
        about = about_flow(own)
        if kept is not None and (number_kept(kept) or 0) > about.jobs + about.grown:  # jobs were added as it ended
            await self.reopen(id)
            return False
        if kept is not None:
            await self._session.store.put_record(counting(id), "jobs", None, kept.version)
        jobs, recorded = await self._jobs.count(own), _counts(own)
        counts = await self._keep(id, jobs, keep)
        [own] = await store.get([id])
        if own is not None and own.state not in TERMINAL:
            await self._keep(id, jobs, None)  # in case that a retry was faster
            return False
        none_gone = sum(counts.values()) == sum(recorded.values())
        if not TERMINAL.issuperset(counts) or (none_gone and counts != recorded):
            await self.reopen(id)
            return False
        if own is not None and own.state != State.DEAD:
            if about_flow(own).abandoned:
                keep = max(keep, ID_KEPT)
            await self._jobs.change(
                [Change(id, own.state, own.fence, Patch(keep=keep))]
            )  # last: the jobs are found by it
        return True

    async def reopen(self, id: str, changes: Sequence[Change] = ()) -> Sequence[bool]:
        """Make a flow that has ended, or was to end, wait for its jobs again, in one commit with changes of them.

        So a process that finds the flow waiting finds its jobs changed. Returns which changes were made.
        """
        own = await self._jobs.own(id)
        done, *made = await self._jobs.change([_reopened(own), *changes])
        done = done and len(changes) < PAGE  # else the flow may have ended after the first commit of several
        was_over = own.state in TERMINAL
        while not done:
            own = await self._jobs.own(id)
            [done] = await self._jobs.change([_reopened(own)])
            was_over = was_over or own.state in TERMINAL
        if was_over:
            await self._keep(id, await self._jobs.count(own), None)
        return made

    async def _keep(self, flow: str, jobs: int, keep: float | None) -> dict[str, int]:
        """Set the retention of the ended jobs of a flow from now on, and count all by state.

        Dead jobs are kept until they are purged.
        """
        changes: list[Change] = []
        counts: dict[str, int] = {}
        async for record in self._jobs.members(flow, jobs):
            counts[record.state] = counts.get(record.state, 0) + 1
            if record.state in TERMINAL and (record.state != State.DEAD or keep is None):
                keeps = self.keeps(record, keep)
                if (record.expires_at is None) != (keeps is None):  # else another process has set it
                    changes.append(Change(record.id, record.state, record.fence, Patch(keep=keeps)))
            if len(changes) >= PAGE:
                await self._jobs.change(changes)
                changes = []
        await self._jobs.change(changes)
        return counts


def _end_of(
    own: Record, ended: FlowEnd, error: str | None, counts: dict[str, int], *, jobs: int, keep: float | None = None
) -> Change:
    """The end of a flow; recorded, unless its retention begins with it."""
    about = about_flow(own)
    payload = msgspec.json.encode(msgspec.structs.replace(about, grown=jobs - about.jobs, ended=ended))
    patch = Patch(
        state=END_STATE[ended], error=error, result=msgspec.json.encode(counts), payload=payload,
        keep=keep, record_end=keep is None,
    )  # fmt: skip
    return Change(own.id, own.state, own.fence, patch, expected_reset_count=own.reset_count)


def _reopened(own: Record) -> Change:
    """Makes a flow wait for its jobs again. An end that was decided before is rejected, by the `reset_count`."""
    patch = Patch(meta=GOING_ON, reset_count=own.reset_count + 1)
    if own.state in TERMINAL:
        patch = msgspec.structs.replace(
            again(own), state=State.BLOCKED, waiting_for=all_of(own.id), extra=gathering(own.id), meta=GOING_ON
        )
    return Change(own.id, own.state, own.fence, patch, expected_reset_count=own.reset_count)


def again(record: Record) -> Patch:
    """Resets the attempts of an ended job."""
    patch = reset(record).patch
    assert patch is not None
    return patch


def _counts(own: Record) -> dict[str, int]:
    """The jobs of an ended flow by state, as they were at its end."""
    try:
        return msgspec.json.decode(own.result or b"{}", type=dict[str, int])
    except UNDECODABLE:
        return {}
