"""The figures of the repository's README.md: a row for each store whose run has been cited."""

from __future__ import annotations

import statistics
from pathlib import Path

from . import bucket, http
from .measure import Figures, number
from .rows import HOLDFAST, RAW

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- figures of the cited runs -->", "<!-- end of figures -->"
RUN, ENQUEUE, BULK = "run, one worker process", "enqueue, one at a time", "enqueue, 1,000 in bulk"
LATENCY = "idle latency, median"
ROWS = (
    ("sqlite", "SQLite", (RUN, ENQUEUE, BULK, LATENCY)),
    ("postgres", "Postgres", (RUN, ENQUEUE, BULK, LATENCY)),
    ("redis", "Redis", (RUN, ENQUEUE, BULK, LATENCY)),
    ("bucket", "bucket, 50 ms a request", (bucket.ONE, None, None, None)),
    ("bucket", "a folder", (bucket.RUN_ONE, bucket.SINGLES, None, bucket.P50)),
    ("http", "HTTP, on SQLite", (http.RUN_ONE, http.name(16), http.BATCHES, http.P50)),
)
"""The run of each row, its name, and its scenario in each column. A row without a figure is left out."""


def text(results: Path) -> str:
    """The table, in Markdown."""
    from .report import load

    lines = [
        "|store|run, jobs/s|enqueue, one at a time|enqueue in bulk|idle latency|run, compared with|",
        "|---|---:|---:|---:|---:|---|",
    ]
    for store, name, scenarios in ROWS:
        path = results / f"cited-{store}.json"
        if not path.exists():
            continue
        run, figures = load(path)
        cells = [_cell(figures, scenario) for scenario in scenarios]
        if not any(cells):
            continue
        where = f"[{name}](bench/README.md#{store}), {run['date'].split()[0]}"
        lines.append(f"|{where}|{'|'.join(cells)}|{_beside(figures, scenarios[0])}|")
    return "\n".join(lines)


def write(results: Path) -> None:
    """Put the table into README.md."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{text(results)}\n{END}{after}", encoding="utf-8")


def _cell(figures: Figures, scenario: str | None) -> str:
    figure = None if scenario is None else figures.of(scenario, HOLDFAST)
    if figure is None or not figure.known:
        return ""
    return number(figure.median) + (" ms" if figure.unit == "ms" else "")


def _beside(figures: Figures, scenario: str | None) -> str:
    peers = {
        figure.who: figure.median
        for figure in figures.all
        if figure.scenario == scenario and figure.known and not figure.who.startswith((HOLDFAST, RAW))
    }
    if not peers or scenario is None:
        return ""
    fastest = max(peers, key=peers.__getitem__)
    ratio = statistics.median(figures.ratios((scenario, HOLDFAST), (scenario, fastest)))
    return f"{number(ratio)} times {fastest}"
