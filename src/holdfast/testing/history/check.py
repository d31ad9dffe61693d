"""The check: every rule on every job, in one pass over the journal; and all entries of a job that breaks a rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from ...core.clock import MICROS
from .job_history import NEVER, Asked, History, Terms, parse_history
from .journal import Entry
from .rules import OF_ALL, OF_ANY_JOB, OF_JOB
from .violation import Violation

STORIES = 3
_SHOWN = (
    "fence", "attempt", "reset_count", "state", "outcome", "holder", "key", "says", "what", "nonce", "run_at",
    "priority",
    "expect", "result", "started_at",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The result of a check."""

    history: History
    violations: list[Violation]

    def __bool__(self) -> bool:
        return not self.violations

    @property
    def jobs(self) -> int:
        """The number of acknowledged jobs."""
        return sum(1 for job in self.history.jobs.values() if job.acks)

    def explain(self) -> str:
        """Every violation, and all entries of the first jobs that break a rule."""
        if not self.violations:
            return f"{self.jobs} acknowledged jobs, {self.history.length} events: every rule holds"
        lines = [f"{len(self.violations)} violations of rules, over {self.jobs} acknowledged jobs"]
        lines += [f"  {one.rule}: job {one.job or '-'}: {one.what}" for one in self.violations[:20]]
        for id in islice(dict.fromkeys(one.job for one in self.violations if one.job), STORIES):
            lines += ["", f"job {id}", *story(self.history, id)]
        return "\n".join(lines)

    def demand(self) -> None:
        """Raise AssertionError with the explanation, unless every rule holds."""
        if self.violations:
            raise AssertionError(self.explain())


def check(entries: Iterable[Entry], terms: Terms | None = None) -> Verdict:
    """Check a history against every rule."""
    history = parse_history(entries, terms or Terms())
    violations: list[Violation] = []
    for job in history.jobs.values():
        for rule in OF_ANY_JOB if job.recreated else OF_JOB:
            violations += [Violation(rule.__name__, job.id, what) for what in rule(job)]
    for rule in OF_ALL:
        violations += rule(history)
    return Verdict(history, violations)


def story(history: History, id: str) -> list[str]:
    """All entries of the journal about one job, in order."""
    known = history.jobs.get(id)
    if known is None:
        return ["  (the journal has no entry of this job)"]
    fates: dict[int, Asked] = {one.asked: one for one in (*known.inserts, *known.notes, *known.changes)}
    fates |= {one.asked: one for end in known.ends.values() for one in end.sent}
    lines: list[str] = []
    for place, entry in known.story:
        fields = " ".join(f"{name}={value}" for name in _SHOWN if (value := _unusual(entry, name)))
        fate = fates.get(place)
        tail = "" if fate is None else f" → {fate.says}" + ("" if fate.answered == NEVER else f" at #{fate.answered}")
        lines.append(f"  #{place} {entry.at / MICROS:.6f} {entry.by}: {entry.event} {fields}{tail}".rstrip())
        if entry.event == "final":
            lines += [
                f"      fence {one.fence} reset_count {one.reset_count}: {one.outcome}" for one in entry.past or ()
            ]
    return lines


def _unusual(entry: Entry, name: str) -> object:
    value = getattr(entry, name)
    return "" if name == "reset_count" and value == 0 else value
