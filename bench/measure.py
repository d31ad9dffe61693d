"""Figures: what was measured, how often, and what it says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Figure:
    """One thing measured of one contender, once per repeat. None: it failed that time."""

    scenario: str
    who: str
    unit: str
    values: list[float | None] = field(default_factory=list)

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def median(self) -> float:
        return statistics.median(self.known) if self.known else math.nan


class Figures:
    """Everything measured in one run."""

    def __init__(self, figures: Sequence[Figure] = ()) -> None:
        self.all = list(figures)

    def of(self, scenario: str, who: str) -> Figure:
        """A figure; one without values if it was not measured."""
        return next((one for one in self.all if (one.scenario, one.who) == (scenario, who)), Figure(scenario, who, ""))

    def add(self, scenario: str, who: str, unit: str, value: float | None) -> None:
        figure = self.of(scenario, who)
        if not figure.values:
            self.all.append(figure := Figure(scenario, who, unit))
        figure.values.append(value)

    def by_scenario(self) -> list[Figure]:
        """All figures, those of one scenario together, in the order in which scenarios and contenders first came."""
        order = list(dict.fromkeys(figure.scenario for figure in self.all))
        return sorted(self.all, key=lambda figure: order.index(figure.scenario))

    def ratios(self, one: tuple[str, str], *others: tuple[str, str]) -> list[float]:
        """One figure over the highest of others, repeat by repeat: what ran minutes apart is never compared."""
        rows = zip(self.of(*one).values, *[self.of(*other).values for other in others], strict=False)
        return [a / max(b for b in rest if b) for a, *rest in rows if a is not None and any(rest)]


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which `part` of the values lie, the next one up where none is exact."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]


def number(value: float) -> str:
    """A figure with as many digits as it deserves."""
    if value >= 1000:
        return f"{value:,.0f}"
    if 0 < value < 0.1:
        return f"{value:.2g}"
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}"
