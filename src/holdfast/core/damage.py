"""Stored jobs that cannot be decoded. Any stored byte can be invalid; the damage is limited to that one job.

The reader of a store gives a field that it cannot decode a default, and records it in `Record.damage`; fields that
stores keep without decoding are checked here. A damaged job can be listed, shown with the stored values, cancelled and
deleted; it never runs: a claim of it ends dead.
"""

from __future__ import annotations

from . import internal as extra
from .job import Record, State, raw_text
from .lifecycle import DELAY_LIMIT, Outcome, shorten

DAMAGED_ID = "damaged-"
"""Prefix of the id that replaces an undecodable id; the job's number in the store follows."""
STATES = frozenset(state.value for state in State)
DAMAGE_SHOWN = 1000
"""Characters shown of a value."""


def damage_of(record: Record) -> dict[str, str]:
    """The fields that cannot be decoded, each with its stored value as text; empty for an intact job."""
    found: dict[str, str] = {**(record.damage or {})}
    if record.extra is not None:
        try:
            extra.decode(record.extra)
        except ValueError:
            found["extra"] = raw_text(record.extra)
    if record.timeout is not None and not 0 <= record.timeout < DELAY_LIMIT:
        found["timeout"] = raw_text(record.timeout)
    if record.state not in STATES:
        found["state"] = raw_text(record.state)
    if record.waiting_for is not None and record.waiting_for.kind == "unknown":
        found["waiting_for"] = raw_text(record.waiting_for.name)
    return {name: shorten(value, DAMAGE_SHOWN) for name, value in found.items()}


def refusal(record: Record) -> Outcome | None:
    """How a claim of a damaged job ends; None if the job is intact."""
    if record.damage is None and record.extra is None and record.timeout is None:
        return None  # most jobs
    found = damage_of(record)
    if not found:
        return None
    details = "; ".join(f"{name} is {value!r:.200}" for name, value in found.items())
    return Outcome.dead(
        f"damaged: the stored data of this job cannot be decoded ({details}). The job did not run. Inspect it with"
        f" `holdfast show {record.id}`, then delete it with `holdfast delete {record.id}`"
    )
