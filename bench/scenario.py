"""Scenarios and their order: all contenders of a scenario one after another, then the next scenario, then again."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .measure import Figures, number
from .process import BenchError

Values = dict[str, float]


@dataclass(frozen=True)
class Scenario:
    """A thing that is measured of several contenders."""

    name: str
    unit: str
    contenders: dict[str, Callable[[Path], float | Values]]
    """Given an empty folder, one measurement; or several, by scenario, where one process gives them together."""
    times: int = 1
    """Measurements per repeat."""


def run(scenarios: Sequence[Scenario], repeats: int, folder: Path) -> tuple[Figures, list[str]]:
    """Measure everything `repeats` times; the figures, and what went wrong."""
    figures, troubles = Figures(), list[str]()
    for repeat in range(repeats):
        for scenario in scenarios:
            # Forth and back, so that nobody always runs first.
            order = list(scenario.contenders.items())[:: 1 if repeat % 2 == 0 else -1]
            for who, measure in order * scenario.times:
                where = f"[{repeat + 1}/{repeats}] {scenario.name} · {who}"
                began = time.monotonic()
                try:
                    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as empty:
                        found = measure(Path(empty))
                except BenchError as error:
                    troubles.append(f"{where}: {error}")
                    print(f"{where}: FAILED\n{error}", file=sys.stderr)
                    figures.add(scenario.name, who, scenario.unit, None)
                    continue
                where = f"{where} ({time.monotonic() - began:.1f} s)"
                values = found if isinstance(found, dict) else {"": found}
                for part, value in values.items():
                    name, unit = part.rsplit(", ", 1) if part else (scenario.name, scenario.unit)
                    figures.add(name, who, unit, value)
                    print(f"{where}{f' · {name}' if part else ''}: {number(value)} {unit}", file=sys.stderr)
    return figures, troubles
