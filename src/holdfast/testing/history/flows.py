"""The rules of flows: what a job that comes after others can rely on."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.job import TERMINAL, State
from .lives import POSSIBLE, Life


def nothing_runs_before_its_parents(life: Life) -> Iterator[str]:
    """A job of a flow is claimed when those before it may have ended: well where it needs that, badly where it must."""
    # The number of one that was refused, since its key stood for another job, is the next one's.
    made = [one.entry for one in life.inserts if one.says == "ok"] or [
        one.entry for one in life.inserts if one.says in POSSIBLE
    ]
    after = made[-1].after if made else None
    if not after or not life.claims or not life.run.terms.everybody:
        return
    first = min(claim.told for claim in life.claims)
    ends = {id: _ends(parent, first) for id, _ in after if (parent := life.run.lives.get(id)) is not None}
    for id, on_dead in after:
        if not ends.get(id):
            yield f"it was claimed before {id} could have ended"
        elif on_dead == "fail" and State.SUCCEEDED not in ends[id]:
            yield f"it was claimed though {id} cannot have ended well"
    if all(on_dead == "compensate" and ends.get(id) == {State.SUCCEEDED} for id, on_dead in after):
        yield "it was claimed though all that it compensates for had ended well"


def never_begun(life: Life) -> bool:
    """Whether it is of a flow whose making was given up: it has no job of its own, and nothing of it runs."""
    id = life.id.rpartition(".")[0]
    flow = life.run.lives.get(id)
    return bool(id) and (flow is None or flow.final is None) and not life.claims


def _ends(parent: Life, before: int) -> set[str]:
    """The ways in which a job may have ended before this place."""
    asked = [(one, end.entry.state) for end in parent.ends.values() for one in end.sent]
    asked += [(one, one.entry.state) for one in parent.changes if one.entry.what == "state"]
    # Where a running job was to be cancelled, whatever would have had it wait ends it instead.
    asked += [(one, State.CANCELLED) for one in parent.changes if one.entry.what in ("cancel", "delete")]
    return {state for one, state in asked if one.asked < before and one.says in POSSIBLE and state in TERMINAL}
