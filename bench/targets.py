"""The targets of the SQLite column, each a ratio within one run or an absolute limit, and whether they were met."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from . import sqlite as names
from .measure import Figures


@dataclass(frozen=True)
class Verdict:
    what: str
    target: str
    values: list[float]
    """Once per repeat."""
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def met(self) -> bool | None:
        """None where nothing was measured."""
        if self.median is None:
            return None
        return self.median >= self.at_least if self.at_least is not None else self.median <= (self.at_most or 0.0)


def judge_sqlite(figures: Figures, depths: tuple[int, ...]) -> list[Verdict]:
    holdfast, raw = names.HOLDFAST, names.RAW

    def ratio(what: str, one: tuple[str, str], other: tuple[str, str], least: float, of: str) -> Verdict:
        return Verdict(what, f"≥ {least:g} {of}", figures.ratios(one, other), at_least=least)

    best_huey = figures.ratios((names.RUN_ONE, holdfast), *[(names.RUN_ONE, who) for who in names.HUEY_THREADS])

    def limit(what: str, scenario: str, most: float, unit: str) -> Verdict:
        return Verdict(what, f"≤ {most:g} {unit}", figures.of(scenario, holdfast).known, at_most=most, unit=unit)

    one, two = (names.RUN_ONE, holdfast), (names.RUN_TWO, holdfast)
    singles = (names.SINGLES, holdfast)
    shallow, deep = names.depth_name(depths[0]), names.depth_name(depths[-1])
    dearer = figures.ratios((deep, holdfast), (shallow, holdfast))
    return [
        Verdict(names.RUN_ONE, "≥ 6 times Huey (the better of 1 and 4 threads)", best_huey, at_least=6.0),
        ratio(names.RUN_ONE, one, (names.RUN_ONE, raw), 0.25, "of the raw loop"),
        ratio(names.RUN_TWO, two, one, 1.0, "times one process"),
        ratio(names.SINGLES, singles, (names.SINGLES, raw), 0.5, "of raw"),
        ratio(f"{names.SINGLES}, app.sync", (names.SINGLES, names.SYNC), (names.SINGLES, raw), 0.4, "of raw"),
        ratio(names.GROUPED, (names.GROUPED, holdfast), (names.GROUPED, raw), 0.25, "of raw, 100 per transaction"),
        ratio(names.BULK, (names.BULK, holdfast), (names.BULK, raw), 0.3, "of raw, 1,000 per transaction"),
        limit(names.P50, names.P50, 15.0, "ms"),
        limit(names.CPU, names.CPU, 1.0, "%"),
        Verdict(f"depth {depths[0]:,} → {depths[-1]:,}", "≤ 1.5 times as dear", dearer, at_most=1.5),
        limit(names.MEMORY, names.MEMORY, 40.0, "MB"),
        limit(names.IMPORT, names.IMPORT, 60.0, "ms"),
    ]
