"""The check: every rule on every job, in one pass over the journal; and the story of a job that broke one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from ...core.clock import MICROS
from .broken import Broken
from .journal import Entry
from .lives import NEVER, Asked, History, Terms, understand
from .rules import OF_ALL, OF_ANY_JOB, OF_JOB

STORIES = 3
_SHOWN = (
    "fence", "attempt", "reset_count", "state", "outcome", "holder", "key", "says", "what", "nonce", "run_at",
    "priority",
    "expect", "result", "started_at",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What a check has found."""

    history: History
    broken: list[Broken]

    def __bool__(self) -> bool:
        return not self.broken

    @property
    def jobs(self) -> int:
        """Acknowledged ones."""
        return sum(1 for life in self.history.lives.values() if life.acks)

    def explain(self) -> str:
        """Every rule that was broken, and the whole story of the first jobs that broke one."""
        if not self.broken:
            return f"{self.jobs} acknowledged jobs, {self.history.length} events: every rule holds"
        lines = [f"{len(self.broken)} violations of rules, over {self.jobs} acknowledged jobs"]
        lines += [f"  {one.rule}: job {one.job or '-'}: {one.what}" for one in self.broken[:20]]
        for job in islice(dict.fromkeys(one.job for one in self.broken if one.job), STORIES):
            lines += ["", f"job {job}", *story(self.history, job)]
        return "\n".join(lines)

    def demand(self) -> None:
        """AssertionError, with the whole story, unless every rule holds."""
        if self.broken:
            raise AssertionError(self.explain())


def check(entries: Iterable[Entry], terms: Terms | None = None) -> Verdict:
    """Hold a history to every rule."""
    history = understand(entries, terms or Terms())
    broken: list[Broken] = []
    for life in history.lives.values():
        for rule in OF_ANY_JOB if life.reborn else OF_JOB:
            broken += [Broken(rule.__name__, life.id, what) for what in rule(life)]
    for rule in OF_ALL:
        broken += rule(history)
    return Verdict(history, broken)


def story(history: History, job: str) -> list[str]:
    """Everything that the journal has about one job, in order."""
    life = history.lives.get(job)
    if life is None:
        return ["  (the journal has no entry of this job)"]
    fates: dict[int, Asked] = {one.asked: one for one in (*life.inserts, *life.notes, *life.changes)}
    fates |= {one.asked: one for end in life.ends.values() for one in end.sent}
    lines: list[str] = []
    for place, entry in life.story:
        fields = " ".join(f"{name}={value}" for name in _SHOWN if (value := _unusual(entry, name)))
        fate = fates.get(place)
        tail = "" if fate is None else f" → {fate.says}" + ("" if fate.told == NEVER else f" at #{fate.told}")
        lines.append(f"  #{place} {entry.at / MICROS:.6f} {entry.by}: {entry.event} {fields}{tail}".rstrip())
        if entry.event == "final":
            lines += [
                f"      fence {one.fence} reset_count {one.reset_count}: {one.outcome}" for one in entry.past or ()
            ]
    return lines


def _unusual(entry: Entry, name: str) -> object:
    value = getattr(entry, name)
    return "" if name == "reset_count" and value == 0 else value
