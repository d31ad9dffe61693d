"""The moving picture of README.md: `make picture` runs `holdfast demo` and draws what it said, when it said it.

The SVG needs no script and no font of its own. Without animations it shows the last frame.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from holdfast.demo.show import COLOURS, Story, show

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"
WIDTH, LINE, LEFT, TOP = 860, 20, 20, 58
"""Pixels: the picture's width, the height of a line, the margin of the text, and where its first line is."""
SHOWN = 10
"""Lines that are visible at a time."""
HOLD = 5.0
"""Seconds for which the last frame stays."""
LIGHT = {
    "back": "#ffffff", "bar": "#eaeef2", "line": "#d0d7de", "text": "#1f2328", "dim": "#59636e", "red": "#b3202c",
    "green": "#1a6b32", "magenta": "#7a3bb8", "cyan": "#0a5c78", "blue": "#0b57b5", "yellow": "#7a5200",
}  # fmt: skip
DARK = {
    "back": "#0d1117", "bar": "#161b22", "line": "#3d444d", "text": "#e6edf3", "dim": "#9198a1", "red": "#ff8a80",
    "green": "#7ee787", "magenta": "#d8b4fe", "cyan": "#7fdbef", "blue": "#84c1ff", "yellow": "#f0cd66",
}  # fmt: skip


class Said(NamedTuple):
    """A line of the demo, with the seconds since its start."""

    at: float
    text: str
    style: str


class Counted(NamedTuple):
    """The number of jobs in each state, with the seconds since the demo's start."""

    at: float
    counts: tuple[int, ...]


class Recorder(Story):
    """The demo, with its lines and counts kept instead of printed."""

    def __init__(self, console: Console, url: str) -> None:
        super().__init__(console, url)
        self.said: list[Said] = []
        self.counted: list[Counted] = []

    def say(self, text: str, style: str = "") -> None:
        self.said.append(Said(self.clock.monotonic() - self.started, text.replace(platform.node(), "laptop"), style))

    async def look(self, app: Any) -> None:
        await super().look(app)
        counts = tuple(sum(1 for job in self.jobs.values() if job.state == state) for state in COLOURS)
        if not self.counted or self.counted[-1].counts != counts:
            self.counted.append(Counted(self.clock.monotonic() - self.started, counts))


def record() -> Recorder:
    """Run the demo."""
    made: list[Recorder] = []

    def make(_: Console, url: str) -> Recorder:
        made.append(Recorder(Console(file=StringIO()), url))
        return made[0]

    show(make)
    return made[0]


def draw(said: list[Said], counted: list[Counted]) -> str:
    """The animated SVG of a run."""
    whole = max(said[-1].at, counted[-1].at) + HOLD
    bottom = TOP + SHOWN * LINE
    steps = [(one.at, number) for number, one in enumerate(said)]
    rules = [_moves("scroll", [(at, max(0, number + 1 - SHOWN) * -LINE) for at, number in steps], whole)]
    lines, rows = [], []
    for at, number in steps:
        one = said[number]
        rules.append(_appears(f"l{number}", at, None, whole))
        text = f"{one.at:5.1f} s  {one.text}"
        lines.append(_text(LEFT, number * LINE, text, [*one.style.split(), f"l{number}"]))
    for number, one in enumerate(counted):
        until = counted[number + 1].at if number + 1 < len(counted) else None
        rules.append(_appears(f"c{number}", one.at, until, whole))
        cells = [
            _text(LEFT + 50 + place * 118, bottom + 62, str(count), [COLOURS[state], "count"])
            for place, (state, count) in enumerate(zip(COLOURS, one.counts, strict=True))
        ]
        rows.append(f'<g class="c{number}{"" if until is None else " gone"}">{"".join(cells)}</g>')
    heads = [
        _text(LEFT + 50 + place * 118, bottom + 40, state.value, [COLOURS[state], "count"])
        for place, state in enumerate(COLOURS)
    ]
    last = max(0, len(said) - SHOWN) * -LINE
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 82}" role="img" aria-labelledby="t d">
<title id="t">holdfast demo</title>
<desc id="d">Two workers run {sum(counted[-1].counts)} jobs. One is killed with kill -9 during a job; another worker
resumes it after its last checkpoint. {escape(said[-1].text)}.</desc>
<style>
{_colours(LIGHT)}
@media (prefers-color-scheme: dark) {{ {_colours(DARK)} }}
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; \
fill: var(--text) }}
{" ".join(f".{name} {{ fill: var(--{name}) }}" for name in sorted({*COLOURS.values(), "red", "green"}))}
.bold {{ font-weight: 600 }} .count {{ text-anchor: middle }} .title {{ text-anchor: middle; fill: var(--dim) }}
.gone {{ opacity: 0 }} .scroll {{ transform: translateY({last}px) }}
@media (prefers-reduced-motion: no-preference) {{
{chr(10).join(rules)}
}}
</style>
<clipPath id="window"><rect x="0" y="{TOP - 15}" width="{WIDTH}" height="{SHOWN * LINE}"/></clipPath>
<rect x="1" y="1" width="{WIDTH - 2}" height="{bottom + 80}" rx="10" fill="var(--back)" stroke="var(--line)"/>
<path d="M1 34V11a10 10 0 0 1 10-10H{WIDTH - 11}a10 10 0 0 1 10 10V34z" fill="var(--bar)" stroke="var(--line)"/>
{_text(WIDTH // 2, 23, "$ holdfast demo", ["title"])}
<g clip-path="url(#window)"><g transform="translate(0 {TOP})"><g class="scroll">
{chr(10).join(lines)}
</g></g></g>
<path d="M{LEFT} {bottom + 16}H{WIDTH - LEFT}" stroke="var(--line)"/>
{"".join(heads)}
{chr(10).join(rows)}
</svg>
"""


def _colours(scheme: dict[str, str]) -> str:
    return "svg { " + "; ".join(f"--{name}: {colour}" for name, colour in scheme.items()) + " }"


def _text(x: int, y: int, text: str, classes: Iterable[str]) -> str:
    return f'<text x="{x}" y="{y}" class="{" ".join(classes)}">{escape(text)}</text>'


def _appears(name: str, at: float, until: float | None, whole: float) -> str:
    """A rule that shows elements of this class from one time to another, in a loop of `whole` seconds."""
    frames = [(0.0, 0), (at, 1)] + ([] if until is None else [(until, 0)])
    return _animated(name, [(second, f"opacity: {value}") for second, value in frames], whole)


def _moves(name: str, frames: list[tuple[float, int]], whole: float) -> str:
    """A rule that moves elements of this class to each height at its time."""
    moves = {height: at for at, height in reversed(frames)} | {0: 0.0}  # the first time of each height
    return _animated(
        name, [(at, f"transform: translateY({height}px)") for height, at in sorted(moves.items(), reverse=True)], whole
    )


def _animated(name: str, frames: list[tuple[float, str]], whole: float) -> str:
    shown = " ".join(f"{100 * at / whole:.2f}% {{ {rule} }}" for at, rule in frames)
    return f".{name} {{ animation: {name} {whole:.1f}s step-end infinite }} @keyframes {name} {{ {shown} }}"


def main() -> None:
    run = record()
    PICTURE.write_text(draw(run.said, run.counted), encoding="utf-8")
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes, {len(run.said)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
