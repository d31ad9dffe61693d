"""Claiming and settling through the store, with and without limit keys, in a process of its own.

A round claims and settles 1,000 jobs in batches of 100 (measured). What it takes from those that wait is put back
before the next one (not measured), so that as many wait at the end as at the beginning.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.clock import SystemClock, fresh_entropy
from holdfast.core.job import LimitKey, NewJob, Record
from holdfast.core.lifecycle import Outcome, settle
from holdfast.core.operations import Ask, Claims, Holder, Settlement
from holdfast.core.settings import Settings
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch, Store

from . import child

ROUND, BATCH = 1000, 100
QUEUES = ("default",)
HOLDER, OTHER = Holder("bench:claims", 3600.0), Holder("bench:holds", 3600.0)
PAYLOAD = b'{"n":1}'
entropy = fresh_entropy()
RULES = Settings().rules

Fill = Callable[[int, int], list[NewJob]]
"""Jobs from one number up to another."""


def plain(rounds: int, keys: int) -> dict[str, Any]:
    """Jobs of no limit key, two for each key that there could be."""
    return _run(_claiming(rounds, 2 * keys, _unlimited))


def turns(rounds: int, keys: int) -> dict[str, Any]:
    """Two jobs for each key. One of a key may run; the keys take turns."""
    return _run(_claiming(rounds, 2 * keys, lambda first, last: _limited(first, last, keys)))


def beside(rounds: int, keys: int) -> dict[str, Any]:
    """Jobs of no limit key, while every key is full and has another job waiting."""
    return _run(_claiming(rounds, 2 * keys, _unlimited, full=keys))


def full(rounds: int, keys: int) -> dict[str, Any]:
    """Every key is full and has jobs waiting: each end lets the next one of its key start."""
    return _run(_handing_on(rounds, keys))


def _unlimited(first: int, last: int) -> list[NewJob]:
    return [_job() for _ in range(first, last)]


def _limited(first: int, last: int, keys: int) -> list[NewJob]:
    return [_job(LimitKey(f"task/{n % keys}", concurrency=1, weight=1)) for n in range(first, last)]


def _job(limit_key: LimitKey | None = None) -> NewJob:
    return NewJob(entropy.uuid7(time.time_ns() // 1000), "nothing", QUEUES[0], PAYLOAD, limit_key=limit_key)


def _run(measure: Callable[[Store], Any]) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        store = open_store(os.environ["BENCH_URL"], SystemClock())
        await store.open()
        try:
            seconds, jobs = await measure(store)
        finally:
            await store.close()
        return {"seconds": seconds, "jobs": jobs}

    return asyncio.run(run())


def _claiming(rounds: int, waiting: int, fill: Fill, full: int = 0) -> Callable[[Store], Any]:
    async def measure(store: Store) -> tuple[float, int]:
        await _fill_limit_keys(store, full, each=2)
        await _insert(store, fill, 0, waiting)
        took = 0.0
        for turn in range(rounds):
            await _insert(store, fill, waiting + turn * ROUND, waiting + (turn + 1) * ROUND)
            ends: list[Settlement] = []
            for _ in range(ROUND // BATCH):
                seconds, claims = await _write(store, ends, BATCH)
                assert len(claims.records) == BATCH
                took, ends = took + seconds, _ends(claims.records)
            took += (await _write(store, ends, 0))[0]
        return took, rounds * ROUND

    return measure


def _handing_on(rounds: int, keys: int) -> Callable[[Store], Any]:
    async def measure(store: Store) -> tuple[float, int]:
        running = await _fill_limit_keys(store, keys, each=2)
        took = 0.0
        for turn in range(rounds):
            for _ in range(ROUND // BATCH):
                oldest, running = running[:BATCH], running[BATCH:]
                seconds, claims = await _write(store, _ends(oldest), BATCH)
                taken = list(claims.records)
                while len(taken) < BATCH:  # a store may leave some for the next claim: it then says to ask again
                    assert claims.records or claims.due_in == 0.0
                    more, claims = await _write(store, [], BATCH - len(taken))
                    seconds, taken = seconds + more, taken + claims.records
                took, running = took + seconds, running + taken
            await _insert(store, lambda first, last: _limited(first, last, keys), turn * ROUND, (turn + 1) * ROUND)
            await _hold(store)
        return took, rounds * ROUND

    return measure


async def _fill_limit_keys(store: Store, keys: int, each: int) -> list[Record]:
    """Have one job of each key run, and the others held."""
    await _insert(store, lambda first, last: _limited(first, last, keys), 0, keys * each)
    running: list[Record] = []
    while len(running) < keys:
        running += (await _ask(store, OTHER, min(BATCH, keys - len(running)))).records
    await _hold(store)
    return running


async def _hold(store: Store) -> None:
    """Have claims set everything aside that cannot start."""
    while (claims := await _ask(store, OTHER, 1)).due_in == 0.0:
        assert not claims.records
    assert not claims.records


async def _insert(store: Store, fill: Fill, first: int, last: int) -> None:
    for start in range(first, last, ROUND):
        await store.write(Batch(inserts=fill(start, min(start + ROUND, last))))


async def _ask(store: Store, holder: Holder, limit: int) -> Claims:
    answers = await store.write(Batch(asks=[Ask(holder, QUEUES, limit, entropy.token())]))
    return answers.asks[0]


async def _write(store: Store, ends: Sequence[Settlement], limit: int) -> tuple[float, Claims]:
    asks = [Ask(HOLDER, QUEUES, limit, entropy.token())] if limit else []
    batch = Batch(settles=ends, asks=asks)
    start = time.perf_counter()
    answers = await store.write(batch)
    seconds = time.perf_counter() - start
    assert all(answers.settles)
    return seconds, answers.asks[0] if asks else Claims([])


def _ends(records: Sequence[Record]) -> list[Settlement]:
    return [
        settle(one, Outcome.succeeded(b"1"), RULES, nonce=entropy.token(), fraction=0.0) for one in records
    ]  # fmt: skip


if __name__ == "__main__":
    child.serve({"plain": plain, "turns": turns, "beside": beside, "full": full})
