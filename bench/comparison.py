"""The measured rows of the comparison in the repository's README.md: figures of cited runs, where one has the queue."""

from __future__ import annotations

from pathlib import Path

from .measure import number
from .rows import HOLDFAST
from .summary import LATENCY, README, RUN

ROWS = {"idle latency, median": (LATENCY, " ms"), "jobs/s, one process": (RUN, "")}
"""The scenario and the unit of each row."""
QUEUES = {
    "Holdfast": ("sqlite", HOLDFAST),
    "Celery": ("redis", "Celery"),
    "RQ": ("redis", "RQ"),
    "Dramatiq": ("redis", "Dramatiq"),
    "Huey": ("redis", "Huey"),
    "Procrastinate": ("postgres", "Procrastinate"),
    "taskiq": ("redis", "taskiq (streams, results)"),
    "Oban (Python)": ("postgres", "Oban"),
}
"""The store and the contender of each column."""


def text(readme: str, results: Path) -> str:
    """README.md with the figures of the cited runs. A cell that no cited run has stays as it is."""
    lines = readme.split("\n")
    head = next(line for line in lines if line.startswith("||Holdfast|"))
    names = head.strip("|").split("|")
    for index, line in enumerate(lines):
        first, *cells = line[1:-1].split("|")
        if line.startswith("|") and first in ROWS and len(cells) == len(names):
            filled = [_cell(results, first, name) or cell for name, cell in zip(names, cells, strict=True)]
            lines[index] = f"|{'|'.join([first, *filled])}|"
    return "\n".join(lines)


def write(results: Path) -> None:
    README.write_text(text(README.read_text(encoding="utf-8"), results), encoding="utf-8")


def _cell(results: Path, row: str, name: str) -> str:
    from .report import load

    store, who = QUEUES.get(name, ("", ""))
    if not (path := results / f"cited-{store}.json").exists():
        return ""
    scenario, unit = ROWS[row]
    figure = load(path)[1].of(scenario, who)
    if not figure.known:
        return ""
    place = "#figures" if who == HOLDFAST else f"bench/README.md#{store}"
    return f"[{number(figure.median)}{unit}]({place})"
