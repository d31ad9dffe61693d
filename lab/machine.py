"""`python -m lab machine STORE`: the conformance suite's state machine for long, some examples at a time, added up.

Each part has a seed of its own, from which Hypothesis draws all of it; one that fails is printed with the command that
repeats it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "lab" / "results" / "machine.json"
GOAL, STEPS, PART = 10_000, 50, 200
CASES = {
    "sqlite": "test_sqlite.py::TestSqliteBesideTheReference",
    "postgres": "test_postgres.py::TestPostgresBesideTheReference",
    "redis": "test_redis.py::TestValkeyBesideTheReference",
    "bucket": "test_bucket.py::TestFolderBesideTheReference",
    "remote": "test_remote.py::TestRemoteSqliteBesideTheReference",
}


def run(store: str, minutes: float) -> int:
    """Go on where the last run ended, until the time is over or the goal reached; 1 where a part fails."""
    deadline = time.monotonic() + minutes * 60
    while (kept := _kept(store))[store]["examples"] < GOAL and time.monotonic() < deadline:
        seed, begun = kept[store]["parts"] + 1, time.monotonic()
        words = ["-m", "pytest", f"tests/conformance/{CASES[store]}", f"--hypothesis-seed={seed}"]
        words += ["-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "--timeout=0"]
        size = {"HOLDFAST_EXAMPLES": str(PART), "HOLDFAST_STEPS": str(STEPS)}
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=os.environ | size, capture_output=True, text=True, check=False
        )
        kept = _kept(store)  # another store's run may have written meanwhile
        mine = kept[store]
        mine["parts"] = seed
        mine["seconds"] = round(mine["seconds"] + time.monotonic() - begun, 1)
        if done.returncode == 0:
            mine["examples"] += PART
        else:
            mine["failed"].append(seed)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        if done.returncode != 0:
            settings = " ".join(f"{name}={value}" for name, value in size.items())
            print(f"{done.stdout}{done.stderr}\nrepeat it:  {settings} python {' '.join(words[:4])}")
            return 1
        print(
            f"{store}: {mine['examples']} examples of {STEPS} steps in {mine['seconds'] / 60:.0f} minutes", flush=True
        )
    return 0


def _kept(store: str) -> dict[str, Any]:
    """The figures of all stores so far, this one among them."""
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept.setdefault(store, {"examples": 0, "parts": 0, "seconds": 0.0, "failed": []})
    return kept
