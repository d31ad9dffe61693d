"""`python -m lab sim`: many schedules, their figures added up over several runs, and the replay of one."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from .plan import Plan, draw
from .schedule import Result, simulate
from .shrink import shrink

RESULTS = Path(__file__).resolve().parent.parent / "results" / "simulation.json"
GATHER_EVERY = 100


def many(
    start: int, count: int, minutes: float | None = None, failures: int = 5
) -> tuple[int, list[int], Counter[str]]:
    """Simulate seeds from `start` on: how many were, those that failed, and what was met on the way."""
    total: Counter[str] = Counter()
    failed: list[int] = []
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    done = 0
    gc.disable()
    try:
        while done < count and (deadline is None or time.monotonic() < deadline):
            result = simulate(draw(start + done))
            total += result.counts
            done += 1
            if not result.verdict:
                failed.append(start + done - 1)
                print(report(result), flush=True)
                if len(failed) >= failures:
                    break
            if done % GATHER_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
    return done, failed, total


def report(result: Result) -> str:
    """A failure, and how to see it again."""
    seed = result.plan.seed
    return (
        f"seed {seed} fails: {result.verdict.explain()}\n\n"
        f"replay it:  python -m lab sim --seed {seed}\nshrink it:  python -m lab sim --seed {seed} --shrink\n"
    )


def one(seed: int, *, smaller: bool, plan: str | None = None) -> int:
    """Replay one seed (or one plan), and tell all of it; with `smaller` look for the smallest plan that fails."""
    given = draw(seed) if plan is None else msgspec.json.decode(plan, type=Plan)
    result = simulate(given)
    print(f"seed {seed}: trace {result.digest}, {result.steps} steps, {result.seconds:.1f} virtual s")
    if smaller and not result.verdict:
        result = shrink(given, {broken.rule for broken in result.verdict.broken})
        print("smallest plan that fails:")
    print(msgspec.json.encode(result.plan).decode())
    print(result.verdict.explain())
    if not result.verdict:
        print(f"replay it:  python -m lab sim --plan '{msgspec.json.encode(result.plan).decode()}'")
    return 0 if result.verdict else 1


def run(count: int, minutes: float | None, start: int | None, failures: int) -> int:
    """Go on where the last run ended, and add up."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"schedules": 0, "next_seed": 0, "counts": {}}
    first = kept["next_seed"] if start is None else start
    begun = time.monotonic()
    done, failed, total = many(first, count, minutes, failures)
    took = time.monotonic() - begun
    print(f"{done} schedules in {took:.0f} s ({done / took * 60:.0f} a minute), {len(failed)} failed: {failed}")
    for name, number in sorted(total.items()):
        print(f"{number:10} {name}")
    if start is None:
        kept["schedules"] += done
        kept["next_seed"] = first + done
        kept["failed"] = kept.get("failed", []) + failed
        kept["seconds"] = round(kept.get("seconds", 0) + took, 1)
        kept["counts"] = dict(sorted((Counter(kept["counts"]) + total).items()))
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"in all: {kept['schedules']} schedules, {len(kept['failed'])} failed", file=sys.stderr)
    return 1 if failed else 0
