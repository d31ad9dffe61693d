"""Figures about the structure of the package, as a table: `make structure`.

    python tests/support/structure.py [--before REVISION] [--details] [--check] [--record]

Files are read (`figures.py`), imports are followed by grimp, and a flow is run on a counting store (`store_calls.py`).
`--before` measures an older revision too, in a folder of its own. `--details` says what was counted. `--check` fails
where a figure misses its target. `--record` keeps the answer in tests/structure.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "structure.md"
FIELDS = ("changed_at", "saves", "deadline_at")
"""Stored fields of a job: two columns, and one in the internal metadata, where CONTRIBUTING.md puts a new field."""

Figure = dict[str, Any]
"""`name`; `value`, as the table shows it; `measure` and `target`, numbers that are compared; `details`, a list."""


def measure(tree: Path) -> list[Figure]:
    """All figures of a tree. Its `src` must be the first place that modules are imported from."""
    import figures
    from store_calls import calls

    package = tree / "src" / "holdfast"
    found: list[Figure] = []

    def add(name: str, value: object, measure: float | None, target: float | None, details: object = ()) -> None:
        figure = {"name": name, "value": str(value), "measure": measure, "target": target, "details": list(details)}  # type: ignore[call-overload]
        found.append(figure)

    top = sorted(file.name for file in package.glob("*.py"))
    add("modules at the top level", len(top), len(top), 8, top)
    public, internal = app_attributes(tree)
    add("public attributes of the app", len(public), len(public), 40, public)
    add("… that the reference does not document", len(internal), len(internal), 0, internal)
    chains = figures.inheritance(package)
    levels = " + ".join(str(len(chain)) for chain in chains) + " levels" if chains else "none"
    add("inheritance among services", levels, len(chains), 0, [" → ".join(chain) for chain in chains])
    circles = cycles()
    sizes = " + ".join(str(len(circle)) for circle in circles) or "0"
    add(
        "modules in import cycles, type-only imports and those inside functions included",
        sizes,
        sum(len(circle) for circle in circles),
        0,
        [", ".join(circle) for circle in circles],
    )
    read = figures.text_decisions(package)
    add(
        "decisions from error text or string prefixes outside the one parser",
        len(read),
        len(read),
        0,
        [f"{place}: {text}" for place, text in read.items()],
    )
    options = figures.option_places(package)
    add(f"places that spell out {figures.MANY_OPTIONS} job options or more", len(options), len(options), 3, options)
    twins = figures.lines([*package.glob("sync*.py"), *package.glob("sync/*.py")])
    written_out = figures.blocking_methods(package)
    restated = sum(written_out.values())
    details = [f"{place}: {count} lines" for place, count in written_out.items()]
    add("lines of blocking methods that are written out", restated, restated, 200, details)
    add("… of the whole blocking API, with what is derived and how", twins[0], None, None)
    made = calls()
    for case, words, targets in (
        ("joined", "store calls to enqueue and to run two jobs and a third that takes their results", (4, 16)),
        ("chained", "… a chain of three", None),
        ("plain", "… three plain jobs", None),
        ("nothing", "… no job: what a worker's start, last look and end take", None),
    ):
        both = [sum(one.values()) for one in made[case]]
        late = max(both[0] - targets[0], both[1] - targets[1]) if targets else None
        details = [
            f"{what}: {', '.join(f'{n} {name}' for name, n in sorted(by.items()))}"
            for what, by in zip(("enqueue", "run"), made[case], strict=True)
        ]
        add(words, f"{both[0]} + {both[1]}", late, targets and 0, details)
        found[-1]["shown target"] = "≤ 4 + 16" if targets else ""
    others, own = figures.session_places(package)
    files = len({place.partition(":")[0] for place in others})
    add("places that reach into `app.session`", f"{len(others)} in {files} files", len(others), 10, others)
    add("… as `self.session`, in a class that the app inherits from", len(own), len(own), 0, own)
    for field in FIELDS:
        named = figures.field_files(package, field)
        add(f"files that name the stored field `{field}`", len(named), len(named), 10, named)
    positions, twice = figures.restated(package)
    add("positions of fields as bare numbers in Lua", len(positions), len(positions), 0, positions)
    add("Python constants that Lua or SQL defines again", len(twice), len(twice), 0, twice)
    rules = figures.limit_rules(package)
    add(
        "lines of the rules of limits",
        ", ".join(f"{name} {count}" for name, count in sorted(rules.items())),
        None,
        None,
    )
    python = [file for file in package.rglob("*.py") if "testing" not in file.relative_to(package).parts]
    total, written, code = figures.lines(python)
    add("lines of Python without `testing/`", f"{total:,}", total, 35_500)
    add("… that are not blank", f"{written:,}", None, None)
    add("… neither blank, comment nor docstring", f"{code:,}", None, None)
    return found


def app_attributes(tree: Path) -> tuple[list[str], list[str]]:
    """Public names of an app, and those of them that the reference says nothing of."""
    from holdfast import Holdfast

    public = {name for name in dir(Holdfast("memory://")) if not name.startswith("_")}
    documented = set(re.findall(r"\bapp\.(\w+)", (tree / "docs" / "reference" / "python.md").read_text()))
    return sorted(public), sorted(public - documented)


def cycles() -> list[list[str]]:
    """Sets of modules of which each imports, directly or through others, each of the others; the largest first."""
    import grimp

    graph = grimp.build_graph("holdfast", exclude_type_checking_imports=False, cache_dir=None)
    below = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found: list[list[str]] = []
    left = set(below)
    while left:
        module = left.pop()
        circle = sorted([module, *(other for other in below[module] if module in below[other])])
        left -= set(circle)
        if len(circle) > 1:
            found.append(circle)
    return sorted(found, key=lambda circle: (-len(circle), circle))


def measured(tree: Path) -> list[Figure]:
    """The figures of a tree, by a process that imports the package from there."""
    path = os.pathsep.join([str(tree / "src"), str(Path(__file__).parent)])
    command = [sys.executable, __file__, "--of", str(tree)]
    env = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return json.loads(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout)


def measured_at(revision: str) -> list[Figure]:
    archive = subprocess.run(
        ["git", "archive", revision, "src", "docs"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    with tempfile.TemporaryDirectory(prefix="holdfast-structure-") as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        return measured(Path(folder))


def missed(figure: Figure) -> bool:
    return figure["target"] is not None and figure["measure"] > figure["target"]


def table(now: list[Figure], before: list[Figure] | None, revision: str, *, details: bool) -> str:
    """The figures in Markdown, and below them what was counted."""
    old = {figure["name"]: figure["value"] for figure in before or ()}
    head = ["", *([f"before (`{revision}`)"] if before else []), "now", "target"]
    lines = [f"| {' | '.join(head)} |", "| --- |" + " --: |" * (len(head) - 1)]
    for figure in now:
        target = "" if figure["target"] is None else figure.get("shown target") or f"≤ {figure['target']:,}"
        cells = [figure["name"], *([old.get(figure["name"], "")] if before else []), figure["value"], target]
        lines.append(f"| {' | '.join(cells)} |")
    if details:
        for figure in now:
            if figure["details"]:
                lines += ["", f"{figure['name']}:", "", *(f"- `{each}`" for each in figure["details"])]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Figures about the structure of the package.")
    parser.add_argument("--before", metavar="REVISION", help="measure this revision too")
    parser.add_argument("--details", action="store_true", help="say what was counted")
    parser.add_argument("--check", action="store_true", help="fail where a figure misses its target")
    parser.add_argument("--record", action="store_true", help=f"write it to {RECORD.relative_to(ROOT)} too")
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.of is not None:
        print(json.dumps(measure(chosen.of)))
        return 0
    now = measured(ROOT)
    before = measured_at(chosen.before) if chosen.before else None
    print(table(now, before, chosen.before, details=chosen.details), end="")
    if chosen.record:
        again = f"--before {chosen.before} --record" if before else "--record"
        RECORD.write_text(
            f"# Figures about the structure\n\nWritten by `python tests/support/structure.py {again}`; "
            f"`--details` lists what is counted.\n\n{table(now, before, chosen.before, details=False)}"
        )
    late = [figure["name"] for figure in now if missed(figure)]
    if chosen.check and late:
        print(f"\n{len(late)} figures miss their target: {'; '.join(late)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
