"""Charts of the cited runs: an SVG for each store, and one of all stores for the repository's README.md.

A picture adapts to a light or dark page by itself. `report.cite` writes them; a test compares them with the cited runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from .measure import Figures, number
from .rows import DEFAULT_ASYNC, DEFAULT_PLAIN, HOLDFAST, RAW, RAW_BLOCKING, THREADS

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
RUN, ENQUEUE, LATENCY = "run, one worker process", "enqueue, one at a time", "idle latency, median"
STORES = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}
"""Those with peers that run jobs."""
LABELS = {
    HOLDFAST: "Holdfast, async, concurrency 100",
    THREADS: "Holdfast, plain functions, concurrency 100",
    DEFAULT_PLAIN: "Holdfast at its defaults, plain functions",
    DEFAULT_ASYNC: "Holdfast at its defaults, async",
}
"""How a contender of `RUN` is called in a picture, where its own name says too little."""
WIDTH, ROW, LEFT, RIGHT = 860, 22, 300, 760
STYLE = """\
svg { --back: #ffffff; --text: #1f2328; --dim: #59636e; --ours: #0b57b5; --peer: #9aa4af }
@media (prefers-color-scheme: dark) {
svg { --back: #0d1117; --text: #e6edf3; --dim: #9198a1; --ours: #84c1ff; --peer: #5b6570 }
}
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--text) }
.title { font-weight: 600 } .dim { fill: var(--dim) } .label { text-anchor: end }
.ours { fill: var(--ours) } .peer { fill: var(--peer) }"""


@dataclass(frozen=True)
class Panel:
    """One scenario: a bar for each contender."""

    title: str
    bars: list[tuple[str, float]]
    """Label and median."""
    unit: str

    @property
    def height(self) -> int:
        return 34 + ROW * len(self.bars)


def write(results: Path) -> None:
    for name, picture in pictures(results).items():
        (IMAGES / name).write_text(picture, encoding="utf-8")


def pictures(results: Path) -> dict[str, str]:
    """The text of each file in docs/images/ that shows figures."""
    from .report import load

    found: dict[str, str] = {}
    rates: list[Panel] = []
    for store, title in STORES.items():
        path = results / f"cited-{store}.json"
        if not path.exists():
            continue
        run, figures = load(path)
        day = run["date"].split()[0]
        run_rate = panel(figures, RUN, f"{title}: jobs run per second, one worker process")
        latency = panel(figures, LATENCY, f"{title}: idle latency, median; shorter is better")
        enqueue = panel(figures, ENQUEUE, f"{title}: jobs enqueued per second, one after another")
        found[f"figures-{store}.svg"] = drawn(f"Figures of {title}, {day}", [run_rate, enqueue, latency])
        rates.append(run_rate)
    if rates:
        found["figures.svg"] = drawn("Jobs run per second on each store", rates)
    return found


def panel(figures: Figures, scenario: str, title: str) -> Panel:
    measured = [
        figure
        for figure in figures.all
        if figure.scenario == scenario and figure.known and figure.who not in (RAW, RAW_BLOCKING)
    ]
    rising = bool(measured) and measured[0].unit == "ms"
    measured.sort(key=lambda figure: figure.median, reverse=not rising)
    labels = LABELS if scenario == RUN else {}
    bars = [(labels.get(figure.who, figure.who), figure.median) for figure in measured]
    return Panel(title, bars, measured[0].unit if measured else "")


def drawn(title: str, panels: list[Panel]) -> str:
    """An SVG with panels one below the other; the bars of each have a scale of their own."""
    height = sum(one.height for one in panels) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape("; ".join(_words(one) for one in panels))}</desc>',
        f"<style>\n{STYLE}\n</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" style="fill: var(--back)"/>',
    ]
    top = 0
    for one in panels:
        lines.append(f'<text class="title" x="16" y="{top + 24}">{escape(one.title)}</text>')
        longest = max((value for _, value in one.bars), default=1.0)
        for place, (label, value) in enumerate(one.bars):
            y = top + 34 + place * ROW
            width = max(1.0, (RIGHT - LEFT) * value / longest)
            kind = "ours" if label.startswith(HOLDFAST) else "peer"
            lines += [
                f'<text class="label" x="{LEFT - 8}" y="{y + 14}">{escape(label)}</text>',
                f'<rect class="{kind}" x="{LEFT}" y="{y + 3}" width="{width:.1f}" height="{ROW - 8}" rx="2"/>',
                f'<text class="dim" x="{LEFT + width + 6:.1f}" y="{y + 14}">{_value(value, one.unit)}</text>',
            ]
        top += one.height
    return "\n".join([*lines, "</svg>", ""])


def _words(one: Panel) -> str:
    return f"{one.title}: " + ", ".join(f"{label} {_value(value, one.unit)}" for label, value in one.bars)


def _value(value: float, unit: str) -> str:
    return number(value) + (" ms" if unit == "ms" else "")
