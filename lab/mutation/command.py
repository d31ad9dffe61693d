"""`python -m lab mutate`: a seeded sample of generated mutants, each in a copy of the source, against its area's tests.

Each mutant is written into a copy of the tree, never into the working tree, and undone after its run. What was found is
kept in lab/results/mutate.json after every mutant, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from .areas import AREAS, SECONDS, Area
from .explained import EXPLAINED
from .generate import Mutant, compiles, mutants

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "results" / "mutate.json"
LEAST_LIMIT = 30.0
"""Seconds that the tests of a mutant get at the least, on a machine that does other things too."""
TARGET = 0.95
"""The part of all mutants that has to be caught."""


@dataclass(frozen=True)
class Chosen:
    area: Area
    mutant: Mutant
    source: str

    @property
    def digest(self) -> str:
        """Of the source that it changes: a result holds for no other."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]


def sample(root: Path, seed: int, count: int, areas: list[Area]) -> list[Chosen]:
    """Mutants by chance, evenly over the areas: where one has fewer, the others get more."""
    pools: list[list[Chosen]] = []
    for area in areas:
        pool: list[Chosen] = []
        for file in area.sources(root):
            source = (root / "src" / "holdfast" / file).read_text()
            pool += [Chosen(area, mutant, source) for mutant in mutants(file, source)]
        Random(f"{seed} {area.name}").shuffle(pool)
        pools.append(pool)
    chosen: list[Chosen] = []
    while len(chosen) < count and any(pools):
        for pool in pools:
            while pool and not compiles(pool[-1].mutant.applied(pool[-1].source)):
                pool.pop()
            if pool and len(chosen) < count:
                chosen.append(pool.pop())
    return sorted(chosen, key=lambda one: (areas.index(one.area), one.mutant.key))


class Copy:
    """A copy of the tree that mutants are written into, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder
        for name in ("src", "lab", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        shutil.copy(ROOT / "pyproject.toml", folder)

    def run(self, area: Area, limit: float | None) -> tuple[str, float]:
        """What the tests of an area say of the copy as it is: "passed", the test that failed, or "timeout"."""
        command = ["-m", "pytest", "-q", "-x", "--assert=plain", "-m", "not extended", "--no-header"]
        command += ["-p", "no:cacheprovider", "-p", "no:schemathesis"]
        command += [*(["-k", area.only] if area.only else []), *area.selected(self.tree)]
        path = f"{self.tree / 'src'}{os.pathsep}{self.tree}"
        env = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self.tree,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            said = "timeout"
        finally:
            _end(process)
        took = time.monotonic() - begun
        if said == "timeout" or process.returncode == 0:
            return "timeout" if said == "timeout" else "passed", took
        failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        last = said.strip().splitlines() or [f"exit code {process.returncode}"]
        return (failed[0].split(" - ")[0] if failed else last[-1]), took

    def plant(self, chosen: Chosen, limit: float) -> tuple[str, float]:
        file = self.tree / "src" / "holdfast" / chosen.mutant.file
        source = file.read_text()
        file.write_text(chosen.mutant.applied(source))
        try:
            return self.run(chosen.area, limit)
        finally:
            file.write_text(source)


def _end(process: subprocess.Popen[str]) -> None:
    """End the run and the servers and workers that its tests have started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(seed: int, count: int, jobs: int, only: str, results: Path, *, again: str = "") -> int:
    """Plant the sample; 0 where enough of it is caught and the rest is explained.

    `again`: which results of earlier runs do not count, "all" or those that "survived", for tests that are new since.
    """
    areas = [area for area in AREAS if only in area.name]
    chosen = sample(ROOT, seed, count, areas)
    kept: dict[str, Any] = json.loads(results.read_text()) if results.exists() and again != "all" else {}
    known = {entry["mutant"]: entry for entry in kept.get("mutants", []) if entry["result"] != again}
    todo: queue.SimpleQueue[Chosen] = queue.SimpleQueue()
    left = [one for one in chosen if known.get(one.mutant.key, {}).get("digest") != one.digest]
    for one in left:
        todo.put(one)
    print(f"{len(chosen)} mutants, seed {seed}; {len(chosen) - len(left)} are known from before", flush=True)
    limits: dict[str, float] = {}
    lock = threading.Lock()

    def write(one: Chosen, said: str, took: float) -> None:
        caught = said != "passed"
        known[one.mutant.key] = {
            "area": one.area.name,
            "mutant": one.mutant.key,
            "digest": one.digest,
            "result": "timeout" if said == "timeout" else "caught" if caught else "survived",
            "by": said if caught else "",
            "seconds": round(took, 1),
        }
        mine = [known[each.mutant.key] for each in chosen if each.mutant.key in known]
        results.parent.mkdir(exist_ok=True)
        results.write_text(json.dumps({"seed": seed, "count": count, "mutants": mine}, indent=1) + "\n")
        print(f"{known[one.mutant.key]['result']:8} {one.mutant.key}  ({took:.0f} s)", flush=True)

    def work(copy: Copy) -> None:
        while True:
            try:
                one = todo.get_nowait()
            except queue.Empty:
                return
            said, took = copy.plant(one, limits[one.area.name])
            with lock:
                write(one, said, took)

    with tempfile.TemporaryDirectory(prefix="holdfast-mutate-") as made:
        copies = [Copy(Path(made) / str(number)) for number in range(jobs if left else 0)]
        for area in areas if left else []:
            said, took = copies[0].run(area, None)
            if said != "passed":
                raise RuntimeError(f"the tests of {area.name} fail without any mutant: {said}")
            print(f"the tests of {area.name} take {took:.0f} s{'' if took <= SECONDS else ', too long'}", flush=True)
            limits[area.name] = max(LEAST_LIMIT, 4 * took)
        threads = [threading.Thread(target=work, args=(copy,), daemon=True) for copy in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return report([(one, known[one.mutant.key]["result"]) for one in chosen])


def report(found: list[tuple[Chosen, str]]) -> int:
    """A table by area, then the mutants that survived without an explanation."""
    table: dict[str, Counter[str]] = {}
    open_ones: list[str] = []
    for one, result in found:
        reason = EXPLAINED.get((one.mutant.file, one.mutant.line, one.mutant.old, one.mutant.new))
        word = "explained" if result == "survived" and reason else result
        table.setdefault(one.area.name, Counter())[word] += 1
        if word == "survived":
            open_ones.append(one.mutant.key)
    words = ("caught", "timeout", "explained", "survived")
    print(f"\n| area | mutants | {' | '.join(words)} |\n| --- |" + " --: |" * 5)
    total: Counter[str] = Counter()
    for name, counts in table.items():
        total += counts
        print(f"| {name} | {counts.total()} | {' | '.join(str(counts[word]) for word in words)} |")
    print(f"| all | {total.total()} | {' | '.join(str(total[word]) for word in words)} |")
    share = (total["caught"] + total["timeout"]) / max(1, total.total())
    print(f"\n{share:.1%} caught; {len(open_ones)} survived without an explanation")
    print("".join(f"- {key}\n" for key in open_ones), end="")
    return 0 if share >= TARGET and not open_ones else 1
