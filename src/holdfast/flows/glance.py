"""Small flows, most of which need no more than this: one read of the whole flow, and one write.

The same rules as in `release.py` and `completion.py`, for the plain case alone: jobs of a flow of a few ended, all that
waits for them can start, or all jobs have succeeded and the flow ends. Whatever else there is (a failure, a wait for
another job, a cancellation, a flow that has grown) is left to those, untouched.

A flow is ended here without telling of it: its end and the retention of its jobs are one commit, and a job that has
succeeded is never run again. A worker whose claim was lost may still add a job: whoever adds one looks afterwards
whether the flow has ended meanwhile (`Flows.add`), and whoever ends a flow looks whether it has grown. One of the two
sees the other, and `Completion.close` has the flow wait again.
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
"""Jobs of a flow that is read as a whole, at the most: those of a larger one would be read again at every end."""
AT_ONCE = PAGE // (SMALL + 1)
"""Flows that are read at once."""


class Glance:
    """Deals with ends of jobs where that is simple."""

    def __init__(self, session: Session, completion: Completion) -> None:
        self._session = session
        self._completion = completion
        self._jobs = FlowJobs(session)

    async def free(self, ids: Sequence[str], told: Mapping[str, Versioned]) -> set[str]:
        """Do what follows from these ends where it is simple, and remove their records; those that are dealt with.

        `told`: records of ends that are known, read before. A job whose record names other jobs is not simple; where
        that is not known, its record stays, and is found by a later look.
        """
        ended: dict[str, list[str]] = {}
        for id in ids:
            flow, _, number = id.rpartition(".")
            if number.isdecimal() and flow not in told and told.get(id, _PLAIN).value == _PLAIN.value:
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
            for flow in late:  # by a worker whose claim was lost: it has looked before the flow had ended
                await self._completion.close(flow)
            dealt.update(id for flow in follows if flow not in late for id in ended[flow])
        return dealt

    def _follows(self, flow: str, ended: Sequence[str], found: Mapping[str, Record]) -> list[Change] | None:
        """What follows from the ends of some jobs of a flow; None where that is not simple."""
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
            if extra.allow_unfinished is not None or record.run_at > record.created_at:
                return None
            if record.waiting_for in awaited:
                change = decide(record, extra, members, record.created_at)
                if change.patch is None or change.patch.state != State.QUEUED:
                    return None
                changes.append(msgspec.structs.replace(change, expected_seq=record.seq))
        if all(record.state in TERMINAL for record in members.values()):
            return None
        # In the same commit as what they free. By `seq`: another flow may have got a chosen id since.
        over = [members[id] for id in ended]
        return [*changes, *(Change(r.id, r.state, r.fence, HANDLED, expected_seq=r.seq) for r in over)]


def _is_end(change: Change) -> bool:
    """Whether it ends a flow: the flow's own job, whose id has no dot."""
    return "." not in change.id


_PLAIN = Versioned(b"{}", 0)
"""What a store writes where a job ends, and nobody has added anything to."""
