"""The targets of rows that every store has and of the SQLite column: ratios within one run, or absolute limits."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from . import idle, rows
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


def judge_rows(figures: Figures, run: str, *, memory: float, traffic: str, traffic_limit: float) -> list[Verdict]:
    """The targets of `rows.py`, the same on each store but for what an idle worker may take. `run`: the tuned run."""

    def ratio(what: str, one: str, other: str, least: float, of: str) -> Verdict:
        return Verdict(what, f"≥ {least:g} {of}", figures.ratios((run, one), (run, other)), at_least=least)

    def limit(scenario: str, most: float, unit: str) -> Verdict:
        return Verdict(
            scenario, f"≤ {most:g} {unit}", figures.of(scenario, rows.HOLDFAST).known, at_most=most, unit=unit
        )

    command, bare = (figures.of(rows.COMMAND, who).values for who in (rows.HOLDFAST, rows.BARE))
    beyond = [a - b for a, b in zip(command, bare, strict=False) if a is not None and b is not None]
    payloads = figures.ratios((rows.PAYLOADS, rows.HOLDFAST), (rows.PAYLOADS, rows.RAW))
    return [
        ratio("run, thread tasks", rows.THREADS, rows.HOLDFAST, 0.7, "of async tasks"),
        ratio("run at defaults, async", rows.DEFAULT_ASYNC, rows.HOLDFAST, 0.8, "of concurrency 100 without log lines"),
        judge_cancellation(figures),
        limit(idle.MEMORY, memory, "MB"),
        limit(traffic, traffic_limit, "a second"),
        Verdict(rows.PAYLOADS, "≤ 1.3 times raw, one by one", payloads, at_most=1.3),
        limit(rows.CLIENT_MEMORY, 100.0, "MB"),
        limit(rows.FLOW_ENQUEUE_CALLS, 4.0, "calls"),
        limit(rows.FLOW_RUN_CALLS, 16.0, "calls"),
        Verdict(rows.COMMAND, "≤ 120 ms beyond `python -c pass`", beyond, at_most=120.0, unit="ms"),
    ]


def judge_cancellation(figures: Figures) -> Verdict:
    values = figures.ratios((rows.CANCEL_P50, rows.HOLDFAST), (names.P50, rows.HOLDFAST))
    return Verdict(rows.CANCEL_P50, "≤ 2 times idle latency", values, at_most=2.0)


def judge_sqlite(figures: Figures, depths: tuple[int, ...]) -> list[Verdict]:
    holdfast, raw = rows.HOLDFAST, rows.RAW

    def ratio(what: str, one: tuple[str, str], other: tuple[str, str], least: float, of: str) -> Verdict:
        return Verdict(what, f"≥ {least:g} {of}", figures.ratios(one, other), at_least=least)

    def to_huey(what: str, who: str, least: float) -> Verdict:
        values = figures.ratios((names.RUN_ONE, who), *[(names.RUN_ONE, one) for one in names.HUEY_THREADS])
        return Verdict(what, f"≥ {least:g} times Huey (the better of 1 and 4 threads)", values, at_least=least)

    def limit(what: str, scenario: str, most: float, unit: str) -> Verdict:
        return Verdict(what, f"≤ {most:g} {unit}", figures.of(scenario, holdfast).known, at_most=most, unit=unit)

    one, two = (names.RUN_ONE, holdfast), (names.RUN_TWO, holdfast)
    singles = (names.SINGLES, holdfast)
    shallow, deep = names.depth_name(depths[0]), names.depth_name(depths[-1])
    cost_ratios = figures.ratios((deep, holdfast), (shallow, holdfast))
    return [
        to_huey("run at defaults, plain function", rows.DEFAULT_PLAIN, 4.0),
        to_huey(names.RUN_ONE, holdfast, 8.0),
        ratio(names.RUN_ONE, one, (names.RUN_ONE, raw), 0.5, "of the raw loop"),
        ratio(names.RUN_TWO, two, one, 1.0, "times one process"),
        ratio(names.SINGLES, singles, (names.SINGLES, raw), 0.7, "of raw"),
        ratio(f"{names.SINGLES}, app.sync", (names.SINGLES, rows.SYNC), (names.SINGLES, raw), 0.75, "of raw"),
        ratio(names.GROUPED, (names.GROUPED, holdfast), (names.GROUPED, raw), 0.5, "of raw, 100 per transaction"),
        ratio(names.BULK, (names.BULK, holdfast), (names.BULK, raw), 0.8, "of raw, 1,000 per transaction"),
        limit(names.P50, names.P50, 2.0, "ms"),
        *judge_rows(figures, names.RUN_ONE, memory=36.0, traffic=idle.WAKE_UPS, traffic_limit=15.0),
        limit(idle.CPU, idle.CPU, 1.0, "%"),
        Verdict(f"depth {depths[0]:,} → {depths[-1]:,}", "≤ 1.3 times the cost", cost_ratios, at_most=1.3),
        limit(names.IMPORT, names.IMPORT, 60.0, "ms"),
    ]
