"""The targets of the Redis column, each a ratio within one run."""

from __future__ import annotations

from . import redis as names
from . import rows
from .idle import SCRIPTS
from .measure import Figures
from .targets import Verdict, judge_rows


def judge_redis(figures: Figures, depths: tuple[int, ...]) -> list[Verdict]:
    def ratio(scenario: str, others: tuple[str, ...], least: float, of: str) -> Verdict:
        values = figures.ratios((scenario, rows.HOLDFAST), *[(scenario, who) for who in others])
        return Verdict(scenario, f"≥ {least:g} {of}", values, at_least=least)

    two = figures.ratios((names.RUN_TWO, rows.HOLDFAST), (names.RUN_ONE, rows.HOLDFAST))
    ours = figures.of(names.P50, rows.HOLDFAST).known
    theirs = [figure.median for who in names.PEERS if (figure := figures.of(names.P50, who)).known]
    latency = [value / min(theirs) for value in ours] if theirs else []
    shallow, deep = names.depth_name(depths[0]), names.depth_name(depths[-1])
    cost_ratios = figures.ratios((deep, rows.HOLDFAST), (shallow, rows.HOLDFAST))
    plain = figures.ratios((names.RUN_ONE, rows.DEFAULT_PLAIN), *[(names.RUN_ONE, who) for who in names.PLAIN])
    sync = figures.ratios((names.SINGLES, rows.SYNC), (names.SINGLES, rows.RAW))
    return [
        Verdict(
            "run at defaults, plain function", "≥ 4 times the fastest peer of plain functions", plain, at_least=4.0
        ),
        ratio(names.RUN_ONE, ("Dramatiq",), 10.0, "times Dramatiq"),
        ratio(names.RUN_ONE, (rows.RAW,), 0.5, "of the raw loop (Lua, claim 100 + ack)"),
        Verdict(names.RUN_TWO, "≥ 1 times one process", two, at_least=1.0),
        ratio(names.SINGLES, (rows.RAW,), 0.8, "of raw, the same keys and indexes"),
        Verdict(f"{names.SINGLES}, app.sync", "≥ 0.8 of raw, the same keys and indexes", sync, at_least=0.8),
        ratio(names.GROUPED, names.ASYNC, 5.0, "times the fastest peer at 100 callers"),
        ratio(names.BULK, (rows.RAW,), 0.8, "of raw, the same keys and indexes"),
        Verdict(names.P50, "≤ 1 times the fastest peer", latency, at_most=1.0),
        *judge_rows(figures, names.RUN_ONE, memory=40.0, traffic=SCRIPTS, traffic_limit=0.7),
        Verdict(f"depth {depths[0]:,} → {depths[-1]:,}", "≤ 1.3 times the cost", cost_ratios, at_most=1.3),
    ]
