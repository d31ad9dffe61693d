"""The targets of the Redis column, each a ratio within one run."""

from __future__ import annotations

from . import redis as names
from .measure import Figures
from .targets import Verdict


def judge_redis(figures: Figures, depths: tuple[int, ...]) -> list[Verdict]:
    def ratio(scenario: str, others: tuple[str, ...], least: float, of: str) -> Verdict:
        values = figures.ratios((scenario, names.HOLDFAST), *[(scenario, who) for who in others])
        return Verdict(scenario, f"≥ {least:g} {of}", values, at_least=least)

    two = figures.ratios((names.RUN_TWO, names.HOLDFAST), (names.RUN_ONE, names.HOLDFAST))
    ours = figures.of(names.P50, names.HOLDFAST).known
    theirs = [figure.median for who in names.PEERS if (figure := figures.of(names.P50, who)).known]
    latency = [value / min(theirs) for value in ours] if theirs else []
    shallow, deep = names.depth_name(depths[0]), names.depth_name(depths[-1])
    dearer = figures.ratios((deep, names.HOLDFAST), (shallow, names.HOLDFAST))
    return [
        ratio(names.RUN_ONE, names.SAFE, 6.0, "times the fastest peer that does not lose jobs"),
        ratio(names.RUN_ONE, (names.RAW,), 0.12, "of the raw loop (Lua, claim 100 + ack)"),
        Verdict(names.RUN_TWO, "≥ 1.4 times one process", two, at_least=1.4),
        ratio(names.SINGLES, (names.RAW,), 0.7, "of raw, the same keys and indexes"),
        ratio(names.GROUPED, names.ASYNC, 4.0, "times the fastest peer at 100 callers"),
        ratio(names.BULK, (*names.ASYNC, "RQ"), 4.0, "times the fastest peer"),
        Verdict(names.P50, "≤ 1 times the fastest peer", latency, at_most=1.0),
        Verdict(f"depth {depths[0]:,} → {depths[-1]:,}", "≤ 1.5 times as dear", dearer, at_most=1.5),
    ]
