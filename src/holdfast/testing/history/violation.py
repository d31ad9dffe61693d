"""A violation of a rule by a history."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a history breaks, and the job that breaks it; "" if it is not about one job."""

    rule: str
    job: str
    what: str
