"""`python -m lab mutants`: every defect in a copy of its own, never in the working tree; prints who caught what."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from .defects import DEFECTS, Defect

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "results" / "mutants.json"
LIMIT = 1800


def run(only: str = "") -> int:
    """Plant each defect; 0 where every one is caught, and everything passes without them."""
    chosen = [defect for defect in DEFECTS if only in f"{defect.file} {defect.what} {defect.caught_by}"]
    missed: list[Defect] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as made:
        tree = Path(made)
        for name in ("src", "lab", "tests"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        fine: dict[str, str] = {}
        for number, defect in enumerate(chosen, start=1):
            begun = time.monotonic()
            who = defect.test or f"simulation on a {defect.place}"
            if who not in fine:  # all seeds at once, for every defect that a seed catches
                most = max(one.seeds for one in chosen if one.place == defect.place)
                fine[who] = _caught(tree, replace(defect, seeds=defect.seeds and most))
            answer = f"{who} fails without the defect too" if fine[who] else _plant(tree, defect)
            by = answer.partition("caught by ")[2]
            if not by:
                missed.append(defect)
            _write(defect, by)
            took = time.monotonic() - begun
            print(f"{number:3} {defect.promise} {defect.file:28} {defect.what}: {answer}  ({took:.0f} s)", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} planted defects caught")
    return 1 if missed else 0


def _write(defect: Defect, by: str) -> None:
    """Put who caught it in its place among the others, and forget those that are not planted any more."""
    kept = json.loads(RESULTS.read_text())["defects"] if RESULTS.exists() else []
    table = {line["what"]: line for line in kept}
    table[defect.what] = {"promise": defect.promise, "what": defect.what, "file": defect.file, "caught_by": by}
    known = [table[each.what] for each in DEFECTS if each.what in table]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"defects": known}, indent=1) + "\n")


def _plant(tree: Path, defect: Defect) -> str:
    file = tree / "src" / "holdfast" / defect.file
    source = file.read_text()
    if source.count(defect.old) != 1:
        return f"cannot be planted: its place stands there {source.count(defect.old)} times"
    file.write_text(source.replace(defect.old, defect.new))
    try:
        by = _caught(tree, defect)
    finally:
        file.write_text(source)
    return f"caught by {by}" if by else f"MISSED by {defect.caught_by}"


def _caught(tree: Path, defect: Defect) -> str:
    """The test or the seed that fails; "" where all is well."""
    if defect.test:
        where, _, pattern = defect.test.partition(" -k ")
        command = [
            "-m",
            "pytest",
            "-q",
            "-x",
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:schemathesis",
            where,
            *(["-k", pattern] if pattern else []),
        ]
    else:
        count = ["--start", "0", "--count", str(defect.seeds), "--failures", "1"]
        command = ["-m", "lab", "sim", "--on", defect.place, *count]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode == 0:
        return ""
    found = re.search(r"^FAILED (\S+)|^(seed \d+) fails", done.stdout, re.MULTILINE)
    if done.returncode != 1 or found is None:
        raise RuntimeError(f"{defect.caught_by} cannot be run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return found[1] or found[2]
