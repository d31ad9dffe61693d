"""The rules of flows: when a job with dependencies may be claimed."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.job import TERMINAL, State
from .job_history import POSSIBLE, JobHistory


def nothing_runs_before_its_parents(job: JobHistory) -> Iterator[str]:
    """A job of a flow is claimed only after its parents ended: in success, or, for a compensation, in failure."""
    # A job that was refused because of its key gives its number to the next one.
    made = [one.entry for one in job.inserts if one.says == "ok"] or [
        one.entry for one in job.inserts if one.says in POSSIBLE
    ]
    after = made[-1].after if made else None
    if not after or not job.claims or not job.run.terms.all_recorded:
        return
    first = min(claim.answered for claim in job.claims)
    ends = {id: _ends(parent, first) for id, _ in after if (parent := job.run.jobs.get(id)) is not None}
    for id, on_dead in after:
        if not ends.get(id):
            yield f"it was claimed before {id} could have ended"
        elif on_dead == "fail" and State.SUCCEEDED not in ends[id]:
            yield f"it was claimed though {id} cannot have ended well"
    if all(on_dead == "compensate" and ends.get(id) == {State.SUCCEEDED} for id, on_dead in after):
        yield "it was claimed though all that it compensates for had ended well"


def never_begun(job: JobHistory) -> bool:
    """Whether it is of a flow that was abandoned before its start: it has no flow job, and none of its jobs runs."""
    id = job.id.rpartition(".")[0]
    flow = job.run.jobs.get(id)
    return bool(id) and (flow is None or flow.final is None) and not job.claims


def _ends(parent: JobHistory, before: int) -> set[str]:
    """The ways in which a job may have ended before this place."""
    asked = [(one, end.entry.state) for end in parent.ends.values() for one in end.sent]
    asked += [(one, one.entry.state) for one in parent.changes if one.entry.what == "state"]
    # If the cancellation of a running job was requested, it ends instead of waiting again.
    asked += [(one, State.CANCELLED) for one in parent.changes if one.entry.what in ("cancel", "delete")]
    return {state for one, state in asked if one.asked < before and one.says in POSSIBLE and state in TERMINAL}
