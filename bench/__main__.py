"""`python -m bench [sqlite|postgres|redis|bucket|http|limits]` measures; `python -m bench report FILE` cites it.

`python -m bench pairs --before COMMIT` compares CPU per job with another commit."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import machine, pairs, report, scenario
from .process import ROOT
from .scale import FULL, QUICK


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    sqlite = commands.add_parser("sqlite", help="Holdfast on SQLite beside Huey, litequeue and the raw loop")
    sqlite.add_argument("--quick", action="store_true", help="small counts, one repeat: only to see that it works")
    sqlite.add_argument("--repeats", type=int, help=f"how often everything is measured (default {FULL.repeats})")
    sqlite.add_argument("--only", help="only scenarios with this in their name")
    sqlite.add_argument("--date", help="what to call the run (default: now)")
    sqlite.add_argument("--dir", type=Path, help="where databases are made (default: bench/.work, beside the code)")
    postgres = commands.add_parser("postgres", help="Holdfast on Postgres beside pgqueuer, Procrastinate, SAQ and raw")
    redis = commands.add_parser("redis", help="Holdfast on Redis beside SAQ, arq, taskiq, streaq, Dramatiq, … and raw")
    http = commands.add_parser("http", help="submissions over HTTP beside a bare Starlette hello-world")
    bucket = commands.add_parser("bucket", help="Holdfast on a bucket, 50 ms a request, beside a queue in one object")
    limits = commands.add_parser("limits", help="claims with 10,000 limited keys waiting, on every store")
    for command in (postgres, redis, bucket, http, limits):
        command.add_argument("--quick", action="store_true", help="small counts, one repeat: only to see that it works")
        command.add_argument("--repeats", type=int, help=f"how often everything is measured (default {FULL.repeats})")
        command.add_argument("--only", help="only scenarios with this in their name")
        command.add_argument("--date", help="what to call the run (default: now)")
        command.add_argument("--dir", type=Path, help="where measurements keep their files (default: bench/.work)")
    cite = commands.add_parser("report", help="put a run's tables into README.md")
    cite.add_argument("results", type=Path)
    pairs.add(commands.add_parser("pairs", help="CPU per job beside that of another commit, in interleaved pairs"))
    arguments = sys.argv[1:]
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["sqlite", *arguments]
    options = parser.parse_args(arguments)
    if options.command == "report":
        report.cite(options.results)
    elif options.command == "pairs":
        pairs.run(options)
    elif options.command == "postgres":
        from .postgres import DURABILITY, Postgres

        bench = Postgres()
        try:
            measure(options, arguments, bench, DURABILITY)
        finally:
            bench.close()
    elif options.command == "redis":
        from .redis import DURABILITY, Redis

        bench = Redis()
        try:
            measure(options, arguments, bench, DURABILITY)
        finally:
            bench.close()
    elif options.command == "bucket":
        from .bucket import DURABILITY, Bucket

        measure(options, arguments, Bucket(), DURABILITY)
    elif options.command == "limits":
        from .limits import DURABILITY, Limits

        bench = Limits()
        try:
            measure(options, arguments, bench, DURABILITY)
        finally:
            bench.close()
    elif options.command == "http":
        from .http import DURABILITY, Http

        measure(options, arguments, Http(), DURABILITY)
    else:
        from .sqlite import DURABILITY, Sqlite

        measure(options, arguments, Sqlite(), DURABILITY)


def measure(options: argparse.Namespace, arguments: list[str], bench: Any, durability: dict[str, str]) -> None:

    scale = QUICK if options.quick else FULL
    if options.repeats:
        scale = replace(scale, repeats=options.repeats)
    chosen = [one for one in bench.scenarios(scale) if not options.only or options.only in one.name]
    folder = options.dir or ROOT / "bench" / ".work"
    folder.mkdir(parents=True, exist_ok=True)
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


if __name__ == "__main__":
    main()
