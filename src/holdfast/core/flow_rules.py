"""Rules of flows, without I/O: what happens to a job when its parents have ended, and to a flow when all jobs have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from . import internal as extras
from .errors import InvalidJob
from .internal import Internal, NotRun
from .job import TERMINAL, Record, State
from .operations import Change, Patch
from .waiting import end_of

TASK, QUEUE = "flow", "flows"
"""Task and queue of a flow's own job, which no worker runs."""
FlowEnd = Literal["succeeded", "failed", "cancelled", "abandoned"]
"""How a flow ended. `failed`: a job of it is dead or did not run. `abandoned`: it was stored but never started."""
END_STATE: dict[FlowEnd, State] = {
    "succeeded": State.SUCCEEDED, "failed": State.DEAD, "cancelled": State.CANCELLED, "abandoned": State.CANCELLED,
}  # fmt: skip
"""The state of the flow's own job after that end."""
CANCELLING, GOING_ON = {"cancelled": True}, {"cancelled": False}
"""Merged into the meta of a flow's own job when the flow is cancelled or retried. It is in `meta`, not in `extra`:
several processes write both. Stores merge `meta` by name, but a change replaces `extra` as a whole, so a process that
writes there how many jobs have ended (`Internal.upto`) would undo a cancellation that it has not read."""
GROWN = {"grown": True}
"""Merged into the same meta before the first job is added to a running flow."""


def member(flow: str, number: int) -> str:
    return f"{flow}.{number}"


def number_in(flow: str, id: str) -> int:
    number = id.removeprefix(f"{flow}.")
    if number == id or not number.isdecimal():
        raise InvalidJob(f"job {id} does not belong to flow {flow}: use jobs of this flow")
    return int(number)


def parents_of(extra: Internal) -> list[tuple[str, str]]:
    """The parents of a job by their ids, inside and outside of its flow, with the rule if one is dead."""
    return [*((member(extra.flow or "", number), on_dead) for number, on_dead in extra.after), *extra.after_jobs]


def decide(child: Record, extra: Internal, parents: dict[str, Record], now: int) -> Change:
    """The next state of a blocked job, given its parents: it is released, waits for another parent, or ends unrun.

    The result does not depend on which parent ended first: a failed parent decides at once, but whether the job is
    needed is only known when all have ended.
    """
    waiting_for, spared, useless = None, None, None
    died = False
    for id, on_dead in parents_of(extra):
        parent = parents.get(id)
        if parent is not None and parent.state not in TERMINAL:
            waiting_for = end_of(id)
            continue
        name = f"job {id} ({parent.task})" if parent is not None else f"job {id}"
        how = f"is {parent.state}" if parent is not None else "was deleted"
        well = parent is not None and parent.state == State.SUCCEEDED
        idle = parent is not None and unneeded(parent)
        if on_dead == "fail" and idle:
            useless = f"not needed, because {name} was not needed"
        elif on_dead == "fail" and not well:
            return unrun(child, extra, "failed_parent", f"{name} {how}")
        if on_dead == "compensate":
            died = died or not (well or idle)
            spared = f"not needed, because {name} succeeded" if well else f"not needed, because {name} was not needed"
    if waiting_for is not None:
        return _change(child, Patch(state=State.BLOCKED, waiting_for=waiting_for))
    if useless is None and not died:
        useless = spared
    if useless is not None:
        return unrun(child, extra, "not_needed", useless)
    return freed(child, now)


def freed(child: Record, now: int) -> Change:
    """Releases the job: it waits only for its due time, if it has a delay (the local clock may be behind)."""
    state = State.SCHEDULED if child.run_at > max(now, child.created_at) else State.QUEUED
    return _change(child, Patch(state=state))


def unrun(child: Record, extra: Internal, why: NotRun, words: str) -> Change:
    """Ends the job without a run; `extra` is its own, which a patch replaces as a whole."""
    about = extras.write(msgspec.structs.replace(extra, not_run=why))
    patch = Patch(state=State.CANCELLED, error=f"not run: {words}", keep=None, extra=about, record_end=True)
    return _change(child, patch)


def _change(child: Record, patch: Patch) -> Change:
    return Change(
        child.id,
        child.state,
        child.fence,
        patch,
        expected_reset_count=child.reset_count,
        expected_waiting_for=child.waiting_for,
    )


def failed(record: Record) -> bool:
    """Whether the end of this job makes its flow fail."""
    if record.state == State.DEAD:
        return not extras.read(record.extra).tolerated
    return _not_run(record) == "failed_parent"


def unneeded(record: Record) -> bool:
    """Whether it is a compensation for something that did not happen."""
    return _not_run(record) == "not_needed"


def cancelling(meta: Mapping[str, Any]) -> bool:
    """Whether a flow that has not ended is being cancelled, according to the meta of its own job."""
    return meta.get("cancelled") is True


def has_grown(meta: Mapping[str, Any]) -> bool:
    """Whether jobs were, or may have been, added to a running flow, according to the meta of its own job."""
    return meta.get("grown") is True


def end_of_flow(*, failures: bool, cancelled: bool, abandoned: bool) -> FlowEnd:
    """How a flow ends after all of its jobs have ended."""
    if failures:
        return "failed"
    if not cancelled:
        return "succeeded"
    return "abandoned" if abandoned else "cancelled"


def _not_run(record: Record) -> NotRun | None:
    return extras.read(record.extra).not_run if record.state == State.CANCELLED else None
