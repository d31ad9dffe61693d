"""`python -m lab report`: the figures of `lab/results/` as tables, put into docs/explain/reliability.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .real.places import PLACES

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = RESULTS.parent.parent / "docs" / "explain" / "reliability.md"
GOALS = {
    "acknowledged jobs": "1,000,000 (100,000 on a bucket)",
    "processes killed (SIGKILL), in all": "1,000",
    "stopped (SIGSTOP)": "200",
    "server killed and restarted": "100",
    "answers dropped, by the line or in the process": "10,000",
    "jobs lost": "0",
    "jobs finished twice": "0",
}
MORE = (
    "killed at a named point",
    "killed by a poison job",
    "stopped past the lease",
    "connections cut",
    "processes with a wall clock an hour off",
    "claims",
    "claims swept",
    "settlements sent again",
    "settlements refused",
    "events",
)


def run() -> int:
    """Rewrite what stands between the page's marks."""
    page = PAGE.read_text()
    for name, table in (("simulation", simulation()), ("stores", stores()), ("mutants", mutants())):
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = mark.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page)
    PAGE.write_text(page)
    return 0


def simulation() -> str:
    kept = _kept("simulation")
    if not kept:
        return "No run so far.\n"
    head = (
        f"{kept['schedules']:,} schedules (seeds 0 to {kept['next_seed'] - 1:,}) in {kept['seconds'] / 60:,.0f} minutes"
        f" of one process, of the 1,000,000 that are the goal; {len(kept['failed'])} failed.\n"
    )
    rows = [f"| {name} | {count:,} |" for name, count in kept["counts"].items()]
    return "\n".join([head, "| met on the way | times |", "| --- | ---: |", *rows]) + "\n"


def stores() -> str:
    kept = {name: found for name in PLACES if (found := _kept(name))}
    if not kept:
        return "No run so far.\n"
    counts = {name: dict(found["counts"]) for name, found in kept.items()}
    for count in counts.values():
        dropped = count.pop("answers dropped", 0) + count.pop("answers dropped in the process", 0)
        count["answers dropped, by the line or in the process"] = dropped
    rows = [["", *kept, "goal"], ["---", *["---:"] * len(kept), "---:"]]
    rows.append(["rounds", *(f"{found['rounds']:,}" for found in kept.values()), ""])
    rows.append(["minutes", *(f"{found['seconds'] / 60:,.0f}" for found in kept.values()), ""])
    rows += [
        [name, *(f"{count.get(name, 0):,}" for count in counts.values()), GOALS.get(name, "")]
        for name in (*GOALS, *MORE)
    ]
    rows.append(["rounds in which a rule was broken", *(str(len(found["broken"])) for found in kept.values()), "0"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def mutants() -> str:
    kept = _kept("mutants")
    if not kept:
        return "No run so far.\n"
    rows = [
        f"| {one['promise']} | {one['what']} | `{one['file']}` | {_caught(one['caught_by'])} |"
        for one in kept["defects"]
    ]
    caught = sum(1 for one in kept["defects"] if one["caught_by"])
    head = f"{caught} of {len(kept['defects'])} caught.\n"
    return "\n".join([head, "| | planted defect | where | caught by |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _caught(by: str) -> str:
    if not by:
        return "**nothing**"
    return by if by.startswith("seed") else f"`{by.removeprefix('tests/')}`"


def _kept(name: str) -> dict:
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {}
