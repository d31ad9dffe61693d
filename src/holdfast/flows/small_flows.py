"""Fast path for small flows: one read of the whole flow, and one write.

The same rules as in `release.py` and `completion.py`, for the simple case only: jobs of a small flow ended, all their
dependents can start, or all jobs have succeeded and the flow ends. All other cases (a failure, a wait for another job,
a cancellation, a flow that has grown) are left to those modules, untouched.

The end of a flow is not recorded here: it is one commit with the retention of its jobs, and a succeeded job never runs
again. A worker whose claim was lost may still add a job: adding checks afterwards whether the flow has ended
(`Flows.add`), and ending checks whether the flow has grown. One of the two sees the other, and `Completion.close` makes
the flow wait again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..client.session import Session
from ..core import internal as extras
from ..core.flow_rules import cancelling, decide, has_grown, member
from ..core.job import TERMINAL, Record, State
from ..core.operations import HANDLED, Change
from ..core.waiting import end_of
from ..store.protocol import Versioned
from .completion import Completion
from .members import PAGE, UNKNOWN, FlowJobs, about_flow, counting

SMALL = 20
"""Maximum jobs of a flow that is read as a whole: those of a larger one would be read again at every end."""
AT_ONCE = PAGE // (SMALL + 1)
"""Flows that are read at once."""


class SmallFlows:
    """Processes ends of jobs in the simple case."""

    def __init__(self, session: Session, completion: Completion) -> None:
        self._session = session
        self._completion = completion
        self._jobs = FlowJobs(session)

    async def free(self, ids: Sequence[str], recorded: Mapping[str, Versioned]) -> set[str]:
        """Process these ends if they are simple, and remove their records; returns those that were processed.

        `recorded`: known records of ends, read before. A job whose record names other jobs is not simple; if that is
        unknown, its record stays, and is processed later.
        """
        ended: dict[str, list[str]] = {}
        for id in ids:
            flow, _, number = id.rpartition(".")
            if number.isdecimal() and flow not in recorded and recorded.get(id, _PLAIN).value == _PLAIN.value:
                ended.setdefault(flow, []).append(id)
        flows, dealt = list(ended), set[str]()
        for start in range(0, len(flows), AT_ONCE):
            some = flows[start : start + AT_ONCE]
            wanted = [id for flow in some for id in (flow, *(member(flow, number) for number in range(SMALL)))]
            found = {record.id: record for record in await self._jobs.get(wanted)}
            follows = {
                flow: changes for flow in some if (changes := self._follows(flow, ended[flow], found)) is not None
            }
            changes = [change for of_flow in follows.values() for change in of_flow]
            written = await self._jobs.change(changes)
            over = sorted(change.id for change, done in zip(changes, written, strict=True) if done and _is_end(change))
            grown = await self._session.store.records([counting(flow) for flow in over]) if over else {}
            late = {flow for flow in over if grown[counting(flow)]}
            for flow in late:  # by a worker whose claim was lost: it checked before the flow had ended
                await self._completion.close(flow)
            dealt.update(id for flow in follows if flow not in late for id in ended[flow])
        return dealt

    def _follows(self, flow: str, ended: Sequence[str], found: Mapping[str, Record]) -> list[Change] | None:
        """The changes that follow from the ends of some jobs of a flow; None if that is not simple."""
        own = found.get(flow)
        if own is None or own.state != State.BLOCKED or not extras.is_flow(own) or cancelling(own.meta):
            return None
        about = about_flow(own)
        jobs = [found.get(member(flow, number)) for number in range(about.jobs)]
        members = {record.id: record for record in jobs if record is not None}
        if about is UNKNOWN or about.jobs > SMALL or len(members) < about.jobs:
            return None
        # A job that adds to its flow marks it before it ends, and so before this read.
        if about.grown or has_grown(own.meta):
            return None
        if any(id not in members or members[id].state != State.SUCCEEDED for id in ended):
            return None
        if all(record.state == State.SUCCEEDED for record in members.values()):
            return self._completion.ending(own, list(members.values()))
        awaited, changes = {end_of(id) for id in ended}, list[Change]()
        for record in members.values():
            if record.state != State.BLOCKED:
                continue
            extra = extras.read(record.extra)
            if extra.after_jobs or extra.allow_unfinished is not None or record.run_at > record.created_at:
                return None
            if record.waiting_for in awaited:
                change = decide(record, extra, members, record.created_at)
                if change.patch is None or change.patch.state != State.QUEUED:
                    return None
                changes.append(msgspec.structs.replace(change, expected_seq=record.seq))
        if all(record.state in TERMINAL for record in members.values()):
            return None
        # In the same commit as the releases. By `seq`: another flow may have got a chosen id since.
        over = [members[id] for id in ended]
        return [*changes, *(Change(r.id, r.state, r.fence, HANDLED, expected_seq=r.seq) for r in over)]


def _is_end(change: Change) -> bool:
    """Whether it ends a flow: the flow's own job, whose id has no dot."""
    return "." not in change.id


_PLAIN = Versioned(b"{}", 0)
"""The value that a store writes when a job ends, and to which nothing was added."""
