"""`python -m bench [sqlite|postgres|redis|bucket|http|limits]` measures; with `--guard` it also compares.

`python -m bench report FILE` cites a run; `python -m bench guard FILE` compares one with the cited run of its store.
`python -m bench pairs --before COMMIT` compares CPU per job with another commit.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import guard, machine, pairs, report, scenario
from .process import ROOT
from .scale import FULL, QUICK

RUNS = {
    "sqlite": ("Sqlite", "Holdfast on SQLite beside Huey, litequeue and the raw loop"),
    "postgres": ("Postgres", "Holdfast on Postgres beside pgqueuer, Procrastinate, SAQ and raw"),
    "redis": ("Redis", "Holdfast on Redis beside SAQ, arq, taskiq, streaq, Dramatiq, … and raw"),
    "http": ("Http", "submissions over HTTP beside a bare Starlette hello-world"),
    "bucket": ("Bucket", "Holdfast on a bucket, 50 ms a request, beside a queue in one object"),
    "limits": ("Limits", "claims with 10,000 limited keys waiting, on every store"),
}
"""The class of each run, in the module of its name, and what it measures."""
NOTHING_CITED = 2
"""The exit code where there is nothing to compare with."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    for name, (_, about) in RUNS.items():
        command = commands.add_parser(name, help=about)
        command.add_argument("--quick", action="store_true", help="small counts, one repeat: only to see that it works")
        command.add_argument("--repeats", type=int, help=f"how often everything is measured (default {FULL.repeats})")
        command.add_argument("--only", help="only scenarios with this in their name")
        command.add_argument("--date", help="what to call the run (default: now)")
        command.add_argument("--dir", type=Path, help="where measurements keep their files (default: bench/.work)")
        command.add_argument(
            "--guard", action="store_true", help="exit with 1 if a ratio is worse by over 10 %% than in the cited run"
        )
    cite = commands.add_parser("report", help="put a run's tables into README.md")
    cite.add_argument("results", type=Path)
    check = commands.add_parser("guard", help="what got worse in a run, beside the cited run of its store")
    check.add_argument("results", type=Path)
    pairs.add(commands.add_parser("pairs", help="CPU per job beside that of another commit, in interleaved pairs"))
    arguments = sys.argv[1:]
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["sqlite", *arguments]
    options = parser.parse_args(arguments)
    if options.command == "report":
        report.cite(options.results)
    elif options.command == "guard":
        compare(options.results)
    elif options.command == "pairs":
        pairs.run(options)
    else:
        if options.guard:
            cited_run(options.command)  # before minutes are spent
        module = importlib.import_module(f".{options.command}", __package__)
        with ExitStack() as stack:
            bench = getattr(module, RUNS[options.command][0])()
            stack.callback(getattr(bench, "close", lambda: None))
            path = measure(options, arguments, bench, module.DURABILITY)
        if options.guard:
            compare(path)


def cited_run(store: str) -> Path:
    path = report.RESULTS / f"cited-{store}.json"
    if not path.exists():
        print(f"no {store} run has been cited, so there is nothing to compare with", file=sys.stderr)
        sys.exit(NOTHING_CITED)
    return path


def compare(path: Path) -> None:
    """Print how a run stands beside the cited one; exit with 1 if something got worse."""
    run, figures = report.load(path)
    cited, cited_figures = report.load(cited_run(run["store"]))
    outcome = guard.compare(run, figures, cited_figures)
    print(guard.text(outcome, run, cited))
    if outcome.worse:
        sys.exit(1)


def measure(options: argparse.Namespace, arguments: list[str], bench: Any, durability: dict[str, str]) -> Path:
    scale = QUICK if options.quick else FULL
    if options.repeats:
        scale = replace(scale, repeats=options.repeats)
    chosen = [one for one in bench.scenarios(scale) if not options.only or options.only in one.name]
    folder = options.dir or ROOT / "bench" / ".work"
    folder.mkdir(parents=True, exist_ok=True)
    # As pip does when it installs: else, with PYTHONDONTWRITEBYTECODE, each process compiles the package again.
    compileall.compile_dir(ROOT / "src", quiet=1)
    run = {
        "store": options.command,
        "date": options.date or datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "command": f"python -m bench {' '.join(arguments)}",
        "quick": options.quick,
        "only": options.only,
        "scale": asdict(scale),
        "machine": machine.describe(folder),
        "versions": bench.versions(),
        "durability": durability,
    }
    load = run["machine"]["load_before"][0]
    if load > 0.3:
        print(f"This machine is busy (load {load}): stop everything else before you believe a figure.", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        figures, run["troubles"] = scenario.run(chosen, scale.repeats, Path(work))
    path = report.save(run, figures)
    print(report.text(run, figures))
    print(f"\nWritten to {path.relative_to(ROOT)}. `python -m bench report` with it puts these tables into README.md.")
    if run["troubles"]:
        sys.exit(f"{len(run['troubles'])} measurements failed; see above")
    return path


if __name__ == "__main__":
    main()
