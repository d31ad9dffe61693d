"""`python -m lab report`: the figures of `lab/results/` as tables in reliability.md and lab/results/README.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .machine import GOAL
from .mutants.defects import DEFECTS
from .real.command import FAULTS, JOBS, dropped
from .real.places import PLACES
from .sim.plan import PLACES as SIMULATED

RESULTS = Path(__file__).resolve().parent / "results"
PAGES = (RESULTS.parent.parent / "docs" / "explain" / "reliability.md", RESULTS / "README.md")
GOALS = {
    "acknowledged jobs": f"{JOBS:,} (100,000 on a bucket)",
    **{name: f"{goal:,}" for name, goal in FAULTS.items()},
    "jobs lost": "0",
    "jobs finished twice": "0",
}
MORE = (
    "killed at a named point",
    "killed by a poison job",
    "stopped past the lease",
    "syncs failed",
    "connections cut",
    "processes with a wrong wall clock",
    "claims",
    "claims held to their order",
    "claims swept",
    "settlements sent again",
    "settlements refused",
    "events",
)


def run() -> int:
    """Rewrite the tables between the marks of the pages."""
    tables = {
        "simulation": simulation(),
        "stores": stores(),
        "details": details(),
        "features": features(),
        "machine": machines(),
        "mutants": mutants(),
    }
    for path in PAGES:
        page = path.read_text()
        for name, table in tables.items():
            mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            page = mark.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page)
        path.write_text(page)
    return 0


def simulation() -> str:
    kept = {place: found for place in SIMULATED if (found := _kept(f"simulation-{place}"))}
    if not kept:
        return "No run so far.\n"
    names = sorted({name for found in kept.values() for name in found["counts"]})
    rows = [["", *kept], ["---", *["---:"] * len(kept)]]
    rows.append(["schedules", *(f"{found['schedules']:,}" for found in kept.values())])
    rows.append(["schedules that failed", *(f"{len(found['failed']):,}" for found in kept.values())])
    rows.append(["minutes of one process", *(f"{found['seconds'] / 60:,.0f}" for found in kept.values())])
    rows += [[name, *(f"{found['counts'].get(name, 0):,}" for found in kept.values())] for name in names]
    total = sum(found["schedules"] for found in kept.values())
    head = f"{total:,} schedules so far, of the 1,000,000 that are the goal.\n"
    return "\n".join([head, *_lines(rows)]) + "\n"


def machines() -> str:
    kept = _kept("machine")
    if not kept:
        return "No run so far.\n"
    rows = [["store", "examples of 50 steps", "goal", "minutes", "parts that failed"]]
    rows.append(["---", *["---:"] * 4])
    for store, found in kept.items():
        minutes, failed = f"{found['seconds'] / 60:,.0f}", f"{len(found['failed'])}"
        rows.append([store, f"{found['examples']:,}", f"{GOAL:,}", minutes, failed])
    return "\n".join(_lines(rows)) + "\n"


def stores() -> str:
    kept = {name: found for name in PLACES if (found := _kept(name))}
    if not kept:
        return "No run so far.\n"
    counts = {name: dict(found["counts"]) for name, found in kept.items()}
    for count in counts.values():
        count["replies dropped, on the connection or in the process"] = dropped(count)
    rows = [["", *kept, "goal"], ["---", *["---:"] * len(kept), "---:"]]
    rows.append(["rounds", *(f"{found['rounds']:,}" for found in kept.values()), ""])
    rows.append(["minutes", *(f"{found['seconds'] / 60:,.0f}" for found in kept.values()), ""])
    rows += [[name, *(f"{count.get(name, 0):,}" for count in counts.values()), GOALS.get(name, "")] for name in GOALS]
    rows.append(["rounds in which a rule was broken", *(str(len(found["broken"])) for found in kept.values()), "0"])
    return "\n".join(_lines(rows)) + "\n"


def details() -> str:
    """Further counts of the same rounds."""
    kept = {name: found["counts"] for name in PLACES if (found := _kept(name))}
    if not kept:
        return "No run so far.\n"
    rows = [["", *kept], ["---", *["---:"] * len(kept)]]
    rows += [[name, *(f"{counts.get(name, 0):,}" for counts in kept.values())] for name in MORE]
    return "\n".join(_lines(rows)) + "\n"


def features() -> str:
    kept = {name: found for name in PLACES if (found := _kept(f"features-{name}"))}
    if not kept:
        return "No run so far.\n"
    names = sorted({name for found in kept.values() for name in found["counts"]})
    rows = [["", *kept], ["---", *["---:"] * len(kept)]]
    rows.append(["rounds", *(f"{found['rounds']:,}" for found in kept.values())])
    rows.append(["minutes", *(f"{found['seconds'] / 60:,.0f}" for found in kept.values())])
    rows += [[name, *(f"{found['counts'].get(name, 0):,}" for found in kept.values())] for name in names]
    rows.append(["rounds in which a rule was broken", *(str(len(found["broken"])) for found in kept.values())])
    return "\n".join(_lines(rows)) + "\n"


def _lines(rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def mutants() -> str:
    kept = _kept("mutants")
    if not kept:
        return "No run so far.\n"
    rows = [
        f"| {one['promise']} | {one['what']} | `{one['file']}` | {_caught(one['caught_by'])} |"
        for one in kept["defects"]
    ]
    caught = sum(1 for one in kept["defects"] if one["caught_by"])
    left = len(DEFECTS) - len(kept["defects"])
    head = f"{caught} of {len(DEFECTS)} caught" + (f"; {left} not run since they were changed.\n" if left else ".\n")
    return "\n".join([head, "| | planted defect | where | caught by |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _caught(by: str) -> str:
    if not by:
        return "**nothing**"
    return by if by.startswith("seed") else f"`{by.removeprefix('tests/')}`"


def _kept(name: str) -> dict:
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {}
