"""What becomes of a job when those before it have ended, and of a flow when all have: rules, without any I/O."""

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

FlowEnd = Literal["succeeded", "failed", "cancelled", "abandoned"]
"""How a flow ended. `failed`: a job of it died or was not run. `abandoned`: it was never started by its maker."""
END_STATE: dict[FlowEnd, State] = {
    "succeeded": State.SUCCEEDED, "failed": State.DEAD, "cancelled": State.CANCELLED, "abandoned": State.CANCELLED,
}  # fmt: skip
"""The state that the flow's own job has then."""
CANCELLING, GOING_ON = {"cancelled": True}, {"cancelled": False}
"""Merged into the meta of a flow's own job by whoever cancels the flow, or retries it. It is in `meta`, not in `extra`:
several processes write both at any time. Stores merge `meta` by name, but a change replaces `extra` as a whole, so a
process that notes there how many jobs have ended (`Internal.upto`) would undo a cancellation that it has not seen."""
GROWN = {"grown": True}
"""Merged there before the first job is added to a flow that runs: whoever reads the flow's own job sees it."""


def member(flow: str, number: int) -> str:
    """The id of a flow's job."""
    return f"{flow}.{number}"


def number_in(flow: str, id: str) -> int:
    """The number that a job has in its flow."""
    number = id.removeprefix(f"{flow}.")
    if number == id or not number.isdecimal():
        raise InvalidJob(f"job {id} is not of flow {flow}")
    return int(number)


def decide(child: Record, extra: Internal, parents: dict[str, Record], now: int) -> Change:
    """What becomes of a blocked job, given its parents as they are: it is freed, waits for another, or ends unrun.

    Its end does not depend on which of them ended first: a parent that failed decides at once, but whether the job is
    needed is known only when all have ended.
    """
    flow, waiting_for, spared, useless = extra.flow or "", None, None, None
    died = False
    for number, on_dead in extra.after:
        id = member(flow, number)
        parent = parents.get(id)
        if parent is not None and parent.state not in TERMINAL:
            waiting_for = end_of(id)
            continue
        name = f"{id} ({parent.task})" if parent is not None else id
        how = f"is {parent.state}" if parent is not None else "is gone"
        well = parent is not None and parent.state == State.SUCCEEDED
        idle = parent is not None and unneeded(parent)
        if on_dead == "fail" and idle:
            useless = f"not needed, as {name} was not"
        elif on_dead == "fail" and not well:
            return unrun(child, extra, "failed_parent", f"{name} {how}")
        if on_dead == "compensate":
            died = died or not (well or idle)
            spared = f"not needed, {name} succeeded" if well else f"not needed, as {name} was not"
    if waiting_for is not None:
        return Change(child.id, child.state, child.fence, Patch(state=State.BLOCKED, waiting_for=waiting_for))
    if useless is None and not died:
        useless = spared
    if useless is not None:
        return unrun(child, extra, "not_needed", useless)
    return freed(child, now)


def freed(child: Record, now: int) -> Change:
    """It waits for nothing but its time, which only a job with a delay has: the clock here may be behind."""
    state = State.SCHEDULED if child.run_at > max(now, child.created_at) else State.QUEUED
    return Change(child.id, child.state, child.fence, Patch(state=state))


def unrun(child: Record, extra: Internal, why: NotRun, words: str) -> Change:
    """It ends without having run; `extra` is its own, which a patch replaces as a whole."""
    about = extras.write(msgspec.structs.replace(extra, not_run=why))
    patch = Patch(state=State.CANCELLED, error=f"not run: {words}", keep=None, extra=about, record_end=True)
    return Change(child.id, child.state, child.fence, patch)


def failed(record: Record) -> bool:
    """Whether a flow has failed because of how this job of it ended."""
    if record.state == State.DEAD:
        return not extras.read(record.extra).tolerated
    return _not_run(record) == "failed_parent"


def unneeded(record: Record) -> bool:
    """Whether it was to compensate for something that did not happen."""
    return _not_run(record) == "not_needed"


def cancelling(meta: Mapping[str, Any]) -> bool:
    """Whether a flow that has not ended is being cancelled, by the meta of its own job."""
    return meta.get("cancelled") is True


def has_grown(meta: Mapping[str, Any]) -> bool:
    """Whether jobs were added to a flow while it ran, or may have been, by the meta of its own job."""
    return meta.get("grown") is True


def end_of_flow(*, failures: bool, cancelled: bool, abandoned: bool) -> FlowEnd:
    """How a flow ends, now that all of its jobs have."""
    if failures:
        return "failed"
    if not cancelled:
        return "succeeded"
    return "abandoned" if abandoned else "cancelled"


def _not_run(record: Record) -> NotRun | None:
    return extras.read(record.extra).not_run if record.state == State.CANCELLED else None
