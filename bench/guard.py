"""What got worse since the run that README.md cites, by ratios that were taken within each of the two runs.

A figure of Holdfast is divided by that of the raw loop of the same scenario and repeat; where there is none, by that of
the fastest peer that both runs have. Counts and memory do not depend on the machine's speed and are compared as
they are. Everything else is listed as not compared.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from .measure import Figure, Figures, number

MAX_LOSS = 0.1
"""The part of a ratio that may be lost before the guard speaks up."""
RATES = {"jobs/s", "requests/s", "flows/s"}
"""Units of which more is better."""
COUNTS = {"calls", "MB", "B", "bytes", "requests", "transactions/s", "commands/s", "scripts/s", "wake-ups/s"}
"""Units that do not depend on the machine's speed."""
BASES = ("raw loop", "python -c pass", "Starlette hello-world", "no limits")
"""What stands for the bare machine, where a scenario has it."""
SPECIAL_BASES = {"Holdfast, app.sync": "raw loop, blocking driver"}
"""What comes before BASES for some rows."""


@dataclass(frozen=True)
class Compared:
    """One figure in both runs: its median ratio, or the figure itself where it is a count."""

    what: str
    unit: str
    to: str
    """What it was divided by; empty for a count."""
    before: list[float]
    now: list[float]

    @property
    def change(self) -> float:
        """How much better it got, as a part of what it was; negative where it got worse."""
        before, now = statistics.median(self.before), statistics.median(self.now)
        return now / before - 1 if self.unit in RATES else 1 - now / before

    @property
    def is_worse(self) -> bool:
        return self.change < -MAX_LOSS

    def __str__(self) -> str:
        before, now = (_spread(values) for values in (self.before, self.now))
        measure = f"ratio to {self.to}" if self.to else self.unit
        word = "better" if self.change >= 0 else "worse"
        return f"{self.what}: {measure} was {before}, is {now}: {abs(self.change):.0%} {word}"


@dataclass
class Outcome:
    compared: list[Compared] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)
    """Why, by figure."""

    @property
    def worse(self) -> list[Compared]:
        return [one for one in self.compared if one.is_worse]


def compare(run: dict[str, Any], figures: Figures, cited: Figures) -> Outcome:
    """This run beside the cited one."""
    outcome, ours = Outcome(), [figure for figure in figures.all if _is_ours(run, figure)]
    for figure in ours:
        old = cited.of(figure.scenario, figure.who)
        if not figure.known:
            outcome.not_compared[_name(figure)] = "it failed in this run"
        elif not old.known:
            outcome.not_compared[_name(figure)] = "the cited run does not have it"
        elif figure.unit in COUNTS:
            if min(old.known) > 0:
                outcome.compared.append(Compared(_name(figure), figure.unit, "", old.known, figure.known))
            else:
                outcome.not_compared[_name(figure)] = "it was 0 in the cited run"
        else:
            _compare_ratio(run, figure, figures, cited, outcome)
    if not run["only"]:
        names = {_name(figure) for figure in ours}
        missing = [_name(figure) for figure in cited.all if _is_ours(run, figure) and _name(figure) not in names]
        outcome.not_compared.update(dict.fromkeys(missing, "only the cited run has it"))
    return outcome


def _compare_ratio(run: dict[str, Any], figure: Figure, figures: Figures, cited: Figures, outcome: Outcome) -> None:
    to = _base(run, figure, figures, cited)
    if to is None:
        outcome.not_compared[_name(figure)] = "no raw loop and no peer in both runs"
        return
    place, beside = (figure.scenario, figure.who), (figure.scenario, to)
    before, now = cited.ratios(place, beside), figures.ratios(place, beside)
    if before and now and statistics.median(before) > 0:
        outcome.compared.append(Compared(_name(figure), figure.unit, to, before, now))
    else:
        outcome.not_compared[_name(figure)] = f"no repeat in which {to} and it were measured"


def _base(run: dict[str, Any], figure: Figure, figures: Figures, cited: Figures) -> str | None:
    """What a figure is divided by: the raw loop, or the peer that was fastest in the cited run."""
    others = {
        old.who: old.median
        for old in cited.all
        if old.scenario == figure.scenario
        and old.known
        and figures.of(old.scenario, old.who).known
        and (old.who in BASES or not _is_ours(run, old))
    }
    wanted = [SPECIAL_BASES.get(figure.who, ""), *BASES]
    found = next((base for base in wanted if base in others and base != figure.who), None)
    if found is not None or not others:
        return found
    return (max if figure.unit in RATES else min)(others, key=lambda who: others[who])


def _is_ours(run: dict[str, Any], figure: Figure) -> bool:
    return figure.who.startswith("Holdfast") or (run["store"] == "limits" and figure.who not in BASES)


def _name(figure: Figure) -> str:
    return f"{figure.scenario} · {figure.who}"


def _spread(values: list[float]) -> str:
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def text(outcome: Outcome, run: dict[str, Any], cited: dict[str, Any]) -> str:
    """What the guard prints: what got worse, all that was compared, and what was not."""
    worse = outcome.worse
    lines = [f"Compared with the cited run of {cited['date']} UTC, {len(outcome.compared)} figures:"]
    if run["quick"] != cited["quick"] or run["scale"]["repeats"] < cited["scale"]["repeats"]:
        lines.append("This run is smaller than the cited one: its ratios are less steady, and some costs differ.")
    lines += [f"  {'WORSE ' if one in worse else '      '}{one}" for one in sorted(outcome.compared, key=_change)]
    if outcome.not_compared:
        lines.append("Not compared:")
        lines += [f"        {what}: {why}" for what, why in outcome.not_compared.items()]
    what = f"{len(worse)} figure{'s' if len(worse) > 1 else ''}" if worse else "Nothing"
    lines.append(f"{what} got worse by more than {MAX_LOSS:.0%}.")
    return "\n".join(lines)


def _change(one: Compared) -> float:
    return one.change
