"""`python -m lab sim`: many schedules, their figures added up over several runs, and the replay of one."""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from .draw import draw
from .plan import Plan
from .schedule import Result, simulate
from .shrink import shrink

RESULTS = Path(__file__).resolve().parent.parent / "results"
KEEP_EVERY = 1.0
"""Minutes after which figures are written down, so that a long run can be ended at any time."""


def many(
    start: int, count: int, minutes: float | None = None, failures: int = 5, place: str = "server"
) -> tuple[int, list[int], Counter[str]]:
    """Simulate seeds from `start` on: how many were, those that failed, and what was met on the way."""
    total: Counter[str] = Counter()
    failed: list[int] = []
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    done = 0
    gc.collect()
    gc.freeze()  # what was there before is not looked through each time
    gc.disable()
    try:
        while done < count and (deadline is None or time.monotonic() < deadline):
            result = simulate(draw(start + done, place))
            total.update(result.counts)
            done += 1
            if not result.verdict:
                failed.append(start + done - 1)
                print(report(result), flush=True)
                if len(failed) >= failures:
                    break
            gc.collect()  # a world is one large circle; the next is quicker in its room than in new room
    finally:
        gc.enable()
        gc.unfreeze()
    return done, failed, +total


def report(result: Result) -> str:
    """A failure, and how to see it again."""
    seed, place = result.plan.seed, result.plan.place
    return (
        f"seed {seed} fails: {result.verdict.explain()}\n\n"
        f"replay and shrink it:  python -m lab sim --on {place} --seed {seed} --shrink\n"
    )


def one(seed: int, place: str, *, smaller: bool, plan: str | None = None) -> int:
    """Replay one seed (or one plan), and print all of it; with `smaller` look for the smallest plan that fails."""
    given = draw(seed, place) if plan is None else msgspec.json.decode(plan, type=Plan)
    result = simulate(given)
    print(f"seed {seed}: trace {result.digest}, {result.steps} steps, {result.seconds:.1f} virtual s")
    if smaller and not result.verdict:
        result = shrink(given, {broken.rule for broken in result.verdict.violations})
        print("smallest plan that fails:")
    print(msgspec.json.encode(result.plan).decode())
    print(result.verdict.explain())
    if not result.verdict:
        print(f"replay it:  python -m lab sim --plan '{msgspec.json.encode(result.plan).decode()}'")
    return 0 if result.verdict else 1


def run(place: str, count: int, minutes: float | None, start: int | None, failures: int) -> int:
    """Go on where the last run ended, and add up."""
    if start is not None:
        return 1 if _part(place, start, count, minutes, failures)[1] else 0
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    broken = False
    while count > 0 and (left := KEEP_EVERY if deadline is None else (deadline - time.monotonic()) / 60) > 0:
        kept = _kept(place)
        begun = time.monotonic()
        done, failed, total = _part(place, kept["next_seed"], count, min(left, KEEP_EVERY), failures)
        kept["schedules"] += done
        kept["next_seed"] += done
        kept["failed"] += failed
        kept["seconds"] = round(kept["seconds"] + time.monotonic() - begun, 1)
        kept["counts"] = dict(sorted((Counter(kept["counts"]) + total).items()))
        _file(place).write_text(json.dumps(kept, indent=1) + "\n")
        print(f"in all: {kept['schedules']} schedules, {len(kept['failed'])} failed", flush=True)
        broken = broken or bool(failed)
        if len(failed) >= failures:
            break
        count -= done
    return 1 if broken else 0


def _part(
    place: str, start: int, count: int, minutes: float | None, failures: int
) -> tuple[int, list[int], Counter[str]]:
    begun = time.monotonic()
    done, failed, total = many(start, count, minutes, failures, place)
    took = time.monotonic() - begun
    rate = f"{done / took * 60:.0f} a minute"
    print(f"{place}: {done} schedules in {took:.0f} s ({rate}), {len(failed)} failed: {failed}")
    for name, number in sorted(total.items()):
        print(f"{number:10} {name}")
    return done, failed, total


def _file(place: str) -> Path:
    return RESULTS / f"simulation-{place}.json"


def _kept(place: str) -> dict[str, Any]:
    if _file(place).exists():
        return json.loads(_file(place).read_text())
    RESULTS.mkdir(exist_ok=True)
    return {"schedules": 0, "next_seed": 0, "seconds": 0.0, "failed": [], "counts": {}}
