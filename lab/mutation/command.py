"""`python -m lab mutate`: a seeded sample of generated mutants, each in a copy of the source, against its area's tests.

Each mutant is written into a copy of the tree, never into the working tree, and undone after its run. What was found is
kept in lab/results/mutate.json after every mutant, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor as Threads
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from .areas import AREAS, SECONDS, Area
from .explained import EXPLAINED
from .generate import Mutant, compiles, function_at, mutants

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "lab" / "results" / "mutate.json"
MIN_LIMIT = 30.0
"""Seconds that the tests of a mutant get at the least, on a machine that does other things too."""
MIN_TEST_LIMIT = 10.0
"""Seconds that one test of a mutant gets at the least."""
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
    """A copy of the tree that mutants are written into, one at a time, and the process that runs its tests."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder
        for name in ("src", "lab", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        self._output = folder / "output"
        self._report = folder / "report.json"
        self._modified = int(time.time())
        path = f"{self.tree / 'src'}{os.pathsep}{self.tree}"
        self._runner = subprocess.Popen(
            [sys.executable, folder / "lab" / "mutation" / "warm.py"],
            cwd=self.tree,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process; it is in the middle of nothing."""
        self._runner.communicate()

    def measure(self, area: Area) -> Measured:
        """Run an area's tests without a mutant: they pass, how long each takes, and what it calls."""
        said, took = self._run(area, None, (), None, report=True)
        if said != "passed":
            raise RuntimeError(f"the tests of {area.name} fail without any mutant: {said}\n{self._output.read_text()}")
        seconds = {name: test["seconds"] for name, test in json.loads(self._report.read_text()).items()}
        self._run(area, None, (), None, report=True, files=area.sources(self.tree))
        calls = {name: set(test["calls"]) for name, test in json.loads(self._report.read_text()).items()}
        return Measured(took, seconds, calls)

    def plant(self, chosen: Chosen, measured: Measured) -> tuple[str, float]:
        """What the tests say of a mutant: "passed", "timeout", or the test that failed. Those that call it go first."""
        file = self.tree / "src" / "holdfast" / chosen.mutant.file
        self._write(file, chosen.mutant.applied(chosen.source))
        try:
            return self._run(chosen.area, measured.limit, measured.order(chosen), measured.test_limit)
        finally:
            self._write(file, chosen.source)

    def _write(self, file: Path, source: str) -> None:
        """Write a source with a new time in whole seconds, by which Python knows that compiled code is out of date."""
        file.write_text(source)
        self._modified += 1
        os.utime(file, (self._modified, self._modified))

    def _run(
        self,
        area: Area,
        limit: float | None,
        order: Sequence[str],
        test_limit: float | None,
        *,
        report: bool = False,
        files: Sequence[str] = (),
    ) -> tuple[str, float]:
        args = [
            "-q",
            "--assert=plain",
            "-m",
            "memory or not extended",
            "--no-header",
            "--tb=line",
            "--hypothesis-seed=0",
        ]
        args += ["-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:randomly", "-p", "no:xdist"]
        args += [] if files else ["-x"]
        args += [] if test_limit is None else ["-o", f"timeout={test_limit:.0f}"]
        args += [*(["-k", area.only] if area.only else []), *area.selected(self.tree)]
        request = {
            "args": args,
            "limit": limit,
            "order": list(order),
            "output": str(self._output),
            "report": str(self._report) if report else "",
            "files": list(files),
        }
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        self._runner.stdin.write(json.dumps(request) + "\n")
        self._runner.stdin.flush()
        answer = json.loads(self._runner.stdout.readline())
        said = self._output.read_text(errors="replace")
        return _verdict(answer["code"], said), answer["seconds"]


def _verdict(code: int | None, said: str) -> str:
    if code is None:
        return "timeout"
    if code == 0:
        return "passed"
    if re.search(r"^E?\s*Failed: Timeout \(>|: Failed: Timeout \(>|^\++ Timeout \++$", said, re.MULTILINE):
        return "timeout"
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = said.strip().splitlines() or [f"exit code {code}"]
    return failed[0].split(" - ")[0] if failed else last[-1]


@dataclass(frozen=True)
class Measured:
    """How an area's tests went without a mutant."""

    took: float
    seconds: dict[str, float]
    """By test."""
    calls: dict[str, set[str]]
    """By test: the functions of the area that it calls, each as file and first line."""

    @property
    def limit(self) -> float:
        """Seconds after which all tests together are ended."""
        return max(MIN_LIMIT, 4 * self.took)

    @property
    def test_limit(self) -> float:
        """Seconds after which one test is ended."""
        return max(MIN_TEST_LIMIT, 4 * max(self.seconds.values()))

    def order(self, chosen: Chosen) -> list[str]:
        """Tests that call the function with the mutant first, and the shortest of them first of all."""
        function = f"{chosen.mutant.file}:{function_at(chosen.source, chosen.mutant.start[0])}"
        return sorted(
            self.seconds, key=lambda test: (function not in self.calls.get(test, set()), self.seconds[test], test)
        )


def run(seed: int, count: int, jobs: int, only: str, results: Path, *, again: str = "") -> int:
    """Plant the sample; 0 where enough of it is caught and the rest is explained.

    `again`: which results of earlier runs do not count: "all", those that "survived", for tests that are new since, or
    those that ended by "timeout", which a busy machine causes too.
    """
    areas = [area for area in AREAS if only in area.name]
    chosen = sample(ROOT, seed, count, areas)
    kept: dict[str, Any] = json.loads(results.read_text()) if results.exists() and again != "all" else {}
    digests = {one.mutant.key: one.digest for one in chosen}
    known = {
        entry["mutant"]: entry
        for entry in kept.get("mutants", [])
        if entry["result"] != again and entry["digest"] == digests.get(entry["mutant"])
    }
    todo: queue.SimpleQueue[Chosen] = queue.SimpleQueue()
    left = [one for one in chosen if one.mutant.key not in known]
    Random(seed).shuffle(left)  # a run that is stopped has results of every area
    for one in left:
        todo.put(one)
    print(f"{len(chosen)} mutants, seed {seed}; {len(chosen) - len(left)} are known from before", flush=True)
    measured: dict[str, Measured] = {}
    measuring, writing = threading.Lock(), threading.Lock()

    def tests_of(area: Area, copy: Copy) -> Measured:
        with measuring:
            if area.name not in measured:
                found = measured[area.name] = copy.measure(area)
                much = "" if found.took <= SECONDS else ", too long"
                print(f"the {len(found.seconds)} tests of {area.name} take {found.took:.1f} s{much}", flush=True)
            return measured[area.name]

    def note(one: Chosen, said: str, took: float) -> None:
        result = "survived" if said == "passed" else "timeout" if said == "timeout" else "caught"
        entry = {"area": one.area.name, "mutant": one.mutant.key, "digest": one.digest, "result": result}
        if result == "caught":
            entry["by"] = said
        known[one.mutant.key] = entry
        print(f"{result:8} {one.mutant.key}  ({took:.1f} s)", flush=True)
        write(results, seed, count, [(each, known[each.mutant.key]) for each in chosen if each.mutant.key in known])

    def work(copy: Copy) -> None:
        with suppress(queue.Empty):
            while True:
                one = todo.get_nowait()
                said, took = copy.plant(one, tests_of(one.area, copy))
                with writing:
                    note(one, said, took)

    with tempfile.TemporaryDirectory(prefix="holdfast-mutate-") as made, ExitStack() as copies, Threads(jobs) as pool:
        running = []
        for number in range(jobs if left else 0):
            copy = Copy(Path(made) / str(number))
            copies.callback(copy.close)
            running.append(pool.submit(work, copy))
        for each in running:
            each.result()
    found = [(one, known[one.mutant.key]) for one in chosen]
    write(results, seed, count, found)
    return report(found)


def explained(one: Chosen) -> str | None:
    return EXPLAINED.get((one.mutant.file, one.mutant.line, one.mutant.old, one.mutant.new))


def write(results: Path, seed: int, count: int, found: list[tuple[Chosen, dict[str, str]]]) -> None:
    """Keep what is known so far, with the reason of each that survived, where there is one."""
    entries = []
    for one, entry in found:
        reason = explained(one) if entry["result"] == "survived" else None
        entries.append(
            {name: entry[name] for name in entry if name != "reason"} | ({"reason": reason} if reason else {})
        )
    table = {name: dict(counts) for name, counts in counted(found).items()}
    results.parent.mkdir(exist_ok=True)
    results.write_text(
        json.dumps({"seed": seed, "count": count, "areas": table, "mutants": entries}, indent=1, ensure_ascii=False)
        + "\n"
    )


def counted(found: list[tuple[Chosen, dict[str, str]]]) -> dict[str, Counter[str]]:
    """By area: how many were caught, took too long, survived with an explanation, or without one."""
    table: dict[str, Counter[str]] = {}
    for one, entry in found:
        result = entry["result"]
        word = "explained" if result == "survived" and explained(one) else result
        table.setdefault(one.area.name, Counter())[word] += 1
    return table


def report(found: list[tuple[Chosen, dict[str, str]]]) -> int:
    """A table by area, then the mutants that survived without an explanation."""
    words = ("caught", "timeout", "explained", "survived")
    print(f"\n| area | mutants | {' | '.join(words)} |\n| --- |" + " --: |" * 5)
    total: Counter[str] = Counter()
    for name, counts in counted(found).items():
        total += counts
        print(f"| {name} | {counts.total()} | {' | '.join(str(counts[word]) for word in words)} |")
    print(f"| all | {total.total()} | {' | '.join(str(total[word]) for word in words)} |")
    share = (total["caught"] + total["timeout"]) / max(1, total.total())
    print(f"\n{share:.1%} caught; {total['survived']} survived without an explanation")
    for one, entry in found:
        if entry["result"] == "survived" and not explained(one):
            print(f"- {one.mutant.key}")
    return 0 if share >= TARGET and not total["survived"] else 1
