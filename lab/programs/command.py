"""`python -m lab programs`: the matrix of programs and stores."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from holdfast import Holdfast

from ..real.places import PLACES
from .cases import CASES, Reported
from .servers import ROOT, SERVERS, serve

NAMES = (*CASES, *SERVERS)
STORES = ("sqlite", "postgres", "redis")
LIMIT = 1800


def enqueue(case: str, url: str, count: int) -> Reported:
    """Run one program; returns what it reports."""
    if case in SERVERS:
        return serve(case, url, count)
    done = subprocess.run(
        [sys.executable, "-m", "lab.programs.cases", case, url, str(count)],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{case}: {done.stderr[-2000:]}")
    acknowledged, reported, files, threads = json.loads(done.stdout)
    return acknowledged, reported, files, threads


def stored(url: str) -> int:
    """How many jobs the store has."""
    app = Holdfast(url)
    try:
        return app.sync.stats().counts["queued"]
    finally:
        app.sync.close()


def matrix(stores: list[str], cases: list[str], count: int) -> int:
    """Every case on every store, a line each; 1 where one breaks a promise."""
    print(f"{'store':9}{'program':30}{'acknowledged':>13}{'stored':>8}{'reported':>9}{'files':>6}{'threads':>8}")
    bad = 0
    for store in stores:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            place = PLACES[store]()
            stack.callback(place.remove)
            place.start()
            for number, case in enumerate(cases, 1):
                own = Path(folder, str(number))
                own.mkdir()
                url = place.url(own, number)
                acknowledged, reported, files, threads = enqueue(case, url, count)
                kept = stored(url)
                held = acknowledged <= kept <= acknowledged + reported and files < 200 and threads < 100
                bad += not held
                words = f"{store:9}{case:30}{acknowledged:13}{kept:8}{reported:9}{files:6}{threads:8}"
                print(words if held else f"{words}  BROKEN", flush=True)
    return 1 if bad else 0
