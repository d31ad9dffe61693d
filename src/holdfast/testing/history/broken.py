"""What a check finds: a rule that a history breaks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that a history breaks, and by which job; "" where it is nobody's."""

    rule: str
    job: str
    what: str
