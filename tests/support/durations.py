"""Where the time of a test run goes: `make test` writes a report, and this prints its slowest tests and folders.

    python tests/support/durations.py [REPORT] [--slowest 20] [--record]

`--record` keeps the answer in tests/durations.md.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / ".pytest_cache" / "report.xml"
RECORD = ROOT / "tests" / "durations.md"


def durations(report: Path) -> dict[str, float]:
    """Seconds by test, set-up included."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):  # pytest's own report
        module = case.get("classname", "")
        parts = module.split(".")
        file = next((n for n, part in enumerate(parts, 1) if part.startswith("test_")), len(parts))
        name = "::".join(["/".join(parts[:file]) + ".py", *parts[file:], case.get("name", "")])
        seconds[name] += float(case.get("time", 0))
    return dict(seconds)


def folder(test: str) -> str:
    parts = test.partition("::")[0].split("/")
    return "/".join(parts[:2])


def table(report: Path, slowest: int) -> str:
    """Both lists in Markdown."""
    seconds = durations(report)
    folders: dict[str, list[float]] = defaultdict(list)
    for test, took in seconds.items():
        folders[folder(test)].append(took)
    total = f"{len(seconds)} tests, {sum(seconds.values()):.0f} s of test time"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [f"{total} ({machine}).", "", "| folder | tests | seconds | longest |", "| --- | --: | --: | --: |"]
    for name, took in sorted(folders.items(), key=lambda item: -sum(item[1])):
        lines.append(f"| `{name}` | {len(took)} | {sum(took):.0f} | {max(took):.1f} |")
    lines += ["", "| test | seconds |", "| --- | --: |"]
    for test, took in sorted(seconds.items(), key=lambda item: -item[1])[:slowest]:
        lines.append(f"| `{test}` | {took:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of a test run goes.")
    parser.add_argument("report", nargs="?", type=Path, default=REPORT, help="a JUnit report (default: the last run's)")
    parser.add_argument("--slowest", type=int, default=20, metavar="N", help="how many tests to name (default: 20)")
    parser.add_argument("--record", action="store_true", help=f"write it to {RECORD.relative_to(ROOT)} too")
    chosen = parser.parse_args()
    if not chosen.report.exists():
        parser.error(f"{chosen.report} is not there: run `make test` first")
    found = table(chosen.report, chosen.slowest)
    print(found, end="")
    if chosen.record:
        RECORD.write_text(
            f"# How long the tests take\n\nWritten by `python tests/support/durations.py --record`.\n\n{found}"
        )


if __name__ == "__main__":
    main()
