"""`python -m lab run STORE`: rounds of real faults until the time is over, added up in `lab/results/STORE.json`.

STORE may be the URL of a store of one's own; its figures are added up in `own.json`, and go into no report.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from .disk import Disk
from .places import PLACES, Place, place_of
from .round import Mix, Round

RESULTS = Path(__file__).resolve().parent.parent / "results"
ROUND = 60.0
"""Seconds of faults in one round, at the most; its drain and its check come on top."""
MANY_JOBS = Mix(
    kills=8.0, stops=3.0, restarts=2.0, troubles=120.0, bad_disks=1.0, crash_points=0.1, lose=0.02, skewed=0.0,
    crowd=1000,
)  # fmt: skip
"""As many jobs as there can be, with a fault or two every second. Dense faults let few through."""
FEATURES = Mix(
    kills=10.0, stops=6.0, restarts=2.0, troubles=120.0, bad_disks=0.0, crash_points=0.1, lose=0.02, skewed=0.5,
    jumps=20.0, features=0.7, crowd=20,
)  # fmt: skip
"""Flows, limits, signals, pauses, schedules and cancels, by processes half of which have a wrong clock that jumps."""
JOBS = 1_000_000
FAULTS = {
    "processes killed (SIGKILL), in all": 1_000,
    "stopped (SIGSTOP)": 200,
    "server killed and restarted": 100,
    "replies dropped, on the connection or in the process": 10_000,
}
"""The goals, over all runs of a store."""


def dropped(counts: dict[str, int]) -> int:
    return counts.get("answers dropped", 0) + counts.get("answers dropped in the process", 0)


def next_mix(place: Place | type[Place], counts: dict[str, int]) -> Mix:
    """Many jobs, or dense faults: whichever is further from its goal."""
    counts = counts | {"replies dropped, on the connection or in the process": dropped(counts)}
    wanted = [name for name in FAULTS if place.has_server or "server" not in name]
    faults = min(counts.get(name, 0) / FAULTS[name] for name in wanted)
    return MANY_JOBS if place.many_jobs and counts.get("acknowledged jobs", 0) / JOBS <= faults else Mix()


def run(store: str, minutes: float, seed: int | None = None, *, features: bool = False) -> int:
    """Go on where the last run ended; 1 where a rule was broken, the journal kept. A given seed adds to no figures."""
    name = ("features-" if features else "") + (store if store in PLACES else "own")
    file = RESULTS / f"{name}.json"
    kept = json.loads(file.read_text()) if file.exists() else {"rounds": 0, "seconds": 0.0, "broken": [], "counts": {}}
    place, disk = place_of(store), Disk()
    os.environ.update(disk.env)  # for the server, however it is started
    place.start()
    begun = time.monotonic()
    try:
        while (left := minutes * 60 - (time.monotonic() - begun)) > 0:
            number = kept["rounds"] + 1
            round_seed = seed if seed is not None else (2_000_000 if features else 1_000_000) + number
            folder = Path(tempfile.mkdtemp(prefix=f"holdfast-lab-{name}-"))
            started = time.monotonic()
            mix = FEATURES if features else next_mix(place, kept["counts"])
            report = Round(place, folder, number, round_seed, mix, disk).run(min(ROUND, left))
            took = time.monotonic() - started
            print(f"round {number} (seed {round_seed}, {took:.0f} s): {report.verdict.explain()}", flush=True)
            kept["rounds"] = number
            kept["seconds"] = round(kept["seconds"] + took, 1)
            kept["counts"] = dict(sorted((Counter(kept["counts"]) + report.counts).items()))
            if not report.verdict:
                kept["broken"].append({"round": number, "seed": round_seed, "rules": _rules(report.verdict.violations)})
            if seed is None:
                RESULTS.mkdir(exist_ok=True)
                file.write_text(json.dumps(kept, indent=1) + "\n")
            if not report.verdict:
                print(f"its journal and its logs are in {folder}")
                return 1
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        place.remove()
        disk.remove()
    for name, count in kept["counts"].items():
        print(f"{count:10} {name}")
    return 0


def _rules(broken) -> list[str]:
    return sorted({one.rule for one in broken})
