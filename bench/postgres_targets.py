"""The targets of the Postgres column, each a ratio within one run."""

from __future__ import annotations

from . import postgres as names
from .measure import Figures
from .targets import Verdict


def judge_postgres(figures: Figures, depths: tuple[int, ...]) -> list[Verdict]:
    measured = {figure.who for figure in figures.all}
    peers = tuple(who for who in (names.PGQUEUER, names.PROCRASTINATE, names.SAQ, names.OBAN) if who in measured)

    def ratio(scenario: str, others: tuple[str, ...], least: float, of: str) -> Verdict:
        values = figures.ratios((scenario, names.HOLDFAST), *[(scenario, who) for who in others])
        return Verdict(scenario, f"≥ {least:g} {of}", values, at_least=least)

    two = figures.ratios((names.RUN_TWO, names.HOLDFAST), (names.RUN_ONE, names.HOLDFAST))
    latency = figures.ratios((names.P50, names.HOLDFAST), (names.P50, names.PGQUEUER))
    shallow, deep = names.depth_name(depths[0]), names.depth_name(depths[-1])
    dearer = figures.ratios((deep, names.HOLDFAST), (shallow, names.HOLDFAST))
    return [
        ratio(names.RUN_ONE, (names.PGQUEUER,), 1.5, "times pgqueuer"),
        ratio(names.RUN_ONE, (names.RAW,), 0.4, "of the raw loop"),
        Verdict(names.RUN_TWO, "≥ 1.2 times one process", two, at_least=1.2),
        ratio(names.SINGLES, (names.RAW,), 0.8, "of raw"),
        ratio(names.GROUPED, peers, 10.0, "times the fastest peer at 100 callers"),
        ratio(names.BULK, (names.PGQUEUER,), 2.0, "times pgqueuer"),
        Verdict(names.P50, "≤ 0.7 times pgqueuer", latency, at_most=0.7),
        Verdict(f"depth {depths[0]:,} → {depths[-1]:,}, never analysed", "≤ 1.5 times as dear", dearer, at_most=1.5),
    ]
