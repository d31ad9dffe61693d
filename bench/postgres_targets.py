"""The targets of the Postgres column, each a ratio within one run."""

from __future__ import annotations

from . import postgres as names
from . import rows
from .idle import TRANSACTIONS
from .measure import Figures
from .targets import Verdict, judge_rows


def judge_postgres(figures: Figures, depths: tuple[int, ...]) -> list[Verdict]:
    measured = {figure.who for figure in figures.all}
    peers = tuple(who for who in (names.PGQUEUER, names.PROCRASTINATE, names.SAQ, names.OBAN) if who in measured)

    def ratio(scenario: str, others: tuple[str, ...], least: float, of: str) -> Verdict:
        values = figures.ratios((scenario, rows.HOLDFAST), *[(scenario, who) for who in others])
        return Verdict(scenario, f"≥ {least:g} {of}", values, at_least=least)

    def of_run(what: str, who: str, other: str, least: float, of: str) -> Verdict:
        values = figures.ratios((names.RUN_ONE, who), (names.RUN_ONE, other))
        return Verdict(what, f"≥ {least:g} {of}", values, at_least=least)

    two = figures.ratios((names.RUN_TWO, rows.HOLDFAST), (names.RUN_ONE, rows.HOLDFAST))
    sync = figures.ratios((names.SINGLES, rows.SYNC), (names.SINGLES, rows.RAW_BLOCKING))
    ours = figures.of(names.P50, rows.HOLDFAST).known
    theirs = [figures.of(names.P50, who).median for who in peers if figures.of(names.P50, who).known]
    latency = [value / min(theirs) for value in ours] if theirs else []
    shallow, deep = names.depth_name(depths[0]), names.depth_name(depths[-1])
    cost_ratios = figures.ratios((deep, rows.HOLDFAST), (shallow, rows.HOLDFAST))
    plain = "run at defaults, plain function"
    return [
        of_run(plain, rows.DEFAULT_PLAIN, names.PROCRASTINATE_PLAIN, 4.0, "times Procrastinate, plain functions"),
        of_run(plain, rows.DEFAULT_PLAIN, names.PGQUEUER, 0.5, "times pgqueuer, async"),
        ratio(names.RUN_ONE, (names.PGQUEUER,), 1.5, "times pgqueuer"),
        ratio(names.RUN_ONE, (rows.RAW,), 0.5, "of the raw loop"),
        Verdict(names.RUN_TWO, "≥ 1 times one process", two, at_least=1.0),
        ratio(names.SINGLES, (rows.RAW,), 0.8, "of raw"),
        Verdict(f"{names.SINGLES}, app.sync", "≥ 0.8 of raw, blocking driver", sync, at_least=0.8),
        ratio(names.GROUPED, (names.PGQUEUER,), 12.0, "times pgqueuer at 100 callers"),
        ratio(names.BULK, (names.PGQUEUER,), 2.0, "times pgqueuer"),
        Verdict(names.P50, "≤ 0.7 times the fastest peer", latency, at_most=0.7),
        *judge_rows(figures, names.RUN_ONE, memory=40.0, traffic=TRANSACTIONS, traffic_limit=1.0),
        Verdict(
            f"depth {depths[0]:,} → {depths[-1]:,}, never analysed", "≤ 1.3 times the cost", cost_ratios, at_most=1.3
        ),
    ]
