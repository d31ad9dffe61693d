"""Comparison of two stores after the same operations, and checks of each single store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ..core.job import TERMINAL, Record, State
from ..core.operations import Change, HolderInfo, QueueStats, Where
from ..core.waiting import Waiting
from ..store.protocol import Store, records_of
from .verbs import every

TIMES = ("run_at", "created_at", "started_at", "finished_at", "expires_at", "changed_at")
DUE = (State.SCHEDULED, State.FAILED)
WHERES = (
    Where(queue="red"),
    Where(task="x", queue="blue"),
    Where(tag="y"),
    Where(states=tuple(TERMINAL)),
    Where(waiting_for=Waiting("signal", "one")),
    Where(waiting_for=Waiting("dependency", "two"), queue="red"),
    Where(waiting_for=Waiting("limit", "one")),
)
KEYS = ("k1", "k2", "k3")
FREE_KEY = "free-"
"""The prefix of keys that another job may get before their first job has ended."""


def same(what: str, ours: object, reference: object) -> None:
    """Raise AssertionError if the values differ."""
    if ours != reference:
        raise AssertionError(f"{what} differs:\n  this store: {ours}\n  reference:  {reference}")


def must(truth: object, sentence: str) -> None:
    """Raise AssertionError if `truth` is false."""
    if not truth:
        raise AssertionError(sentence)


def plain(record: Record, now: int, *, exact: bool) -> dict[str, Any]:
    """A record without fields that may differ: its number in the store, and, unless `exact`, its times.

    A due job counts as queued, also if no ask has made it so yet.
    """
    fields = {name: value for name, value in msgspec.structs.asdict(record).items() if name != "seq"}
    if record.state in DUE and record.run_at <= now:
        fields["state"] = State.QUEUED
    if not exact:
        fields |= {name: fields[name] is not None for name in TIMES}
        fields["history"] = [msgspec.structs.replace(line, started_at=0, ended_at=0) for line in record.history]
    return fields


class Seen(NamedTuple):
    """What is read from a store for each comparison."""

    jobs: list[Record]
    queues: list[QueueStats]
    holders: list[HolderInfo]
    transitions: dict[str, list[str]] | None
    views: dict[str, object]


class Sight:
    """What was seen of a store so far, and the properties that can be checked by it alone:

    1. a job has at most one claim, its last one;
    2. its fence rises with every claim;
    3. its attempts are never more than its claims;
    4. it leaves a terminal state only by an explicit retry;
    5. a key has at most one unfinished job (an operator may retry an old one whose key has expired);
    6. the heartbeat number of a holder rises;
    7. all views (get, find, stats, holders) agree.
    """

    def __init__(self) -> None:
        self.last_claim: dict[str, Record] = {}
        self.claims: Counter[str] = Counter()
        self.ended: dict[str, tuple[str, int | None]] = {}
        self.retried: set[str] = set()
        self.heartbeats: dict[str, int] = {}
        self.cursors: list[str | None] = [None, None]
        self.looks = 0

    def claimed(self, record: Record) -> None:
        before = self.last_claim.get(record.id)
        must(before is None or record.fence > before.fence, f"the fence of {record.id} did not rise")
        must(record.state == State.RUNNING, f"{record.id} was claimed and is not running")
        self.last_claim[record.id] = record
        self.claims[record.id] += 1

    def changed(self, change: Change, *, made: bool) -> None:
        if made and change.patch is not None and change.patch.reset_count is not msgspec.UNSET:
            self.retried.add(change.id)

    def renewed(self, holder: str, heartbeat: int) -> None:
        must(heartbeat > self.heartbeats.get(holder, 0), f"the heartbeat number of {holder} did not rise")
        self.heartbeats[holder] = heartbeat

    async def compare(self, store: Store, reference: Store, *, exact: bool, whole: bool) -> None:
        """Compare all jobs, queues, holders and transitions of both stores, and one other view (the next), or all."""
        index = None if whole else self.looks
        self.looks += 1
        mine, other = [await self._seen(n, each, index, exact=exact) for n, each in enumerate((store, reference))]
        then = await reference.now()
        now = then if exact else await store.now()
        same("find", [record.id for record in mine.jobs], [record.id for record in other.jobs])
        for ours, theirs in zip(mine.jobs, other.jobs, strict=True):
            same(f"job {ours.id}", plain(ours, now, exact=exact), plain(theirs, then, exact=exact))
        same("stats", [(q.name, q.paused) for q in mine.queues], [(q.name, q.paused) for q in other.queues])
        # Without a shared clock, a process knows the age of a heartbeat only since it began to watch.
        aged = exact and "watched_leases" not in store.features
        same("holders", *[[_shown(seen, aged=aged) for seen in _by_id(each.holders)] for each in (mine, other)])
        self.check(mine.jobs, mine.queues, mine.holders)
        if mine.transitions is not None and other.transitions is not None:
            same("transitions", mine.transitions, other.transitions)
        for name, view in mine.views.items():
            same(name, view, other.views[name])

    async def _seen(self, which: int, store: Store, index: int | None, *, exact: bool) -> Seen:
        """Read everything concurrently: nothing is written meanwhile."""
        transitions = self._transitions(which, store, exact=exact)
        views = _views(store, index, exact=exact)
        return Seen(*await asyncio.gather(every(store), store.stats(), store.holders(), transitions, views))

    async def _transitions(self, which: int, store: Store, *, exact: bool) -> dict[str, list[str]] | None:
        """The new states of each job since the last comparison; with a real clock, a short wait may be over.

        None if the store has missed some: after reopening, it may have only a snapshot.
        """
        answer = await store.transitions(self.cursors[which], 1_000_000)
        self.cursors[which] = answer.cursor
        if answer.missed:
            return None
        states: dict[str, list[str]] = {}
        for transition in answer.transitions:
            state = transition.state if exact or transition.state not in DUE else State.QUEUED
            states.setdefault(transition.id, []).append(state)
        return states

    def check(self, records: list[Record], stats: list[QueueStats], holders: list[HolderInfo]) -> None:
        """Check one store."""
        there = {record.id for record in records}
        for id in set(self.claims) - there:  # a chosen id may come back as another job
            del self.claims[id], self.last_claim[id]
        for record in records:
            self._check_job(record)
        self.ended = {r.id: (r.state, r.finished_at) for r in records if r.state in TERMINAL}
        self.retried.clear()
        never_reset = [record for record in records if record.reset_count == 0 and record.state not in TERMINAL]
        living = Counter(record.key for record in never_reset if record.key is not None)
        for key, number in living.items():
            must(number == 1 or key.startswith(FREE_KEY), f"key {key} has {number} unfinished jobs")
        # The heartbeat numbers of a removed holder may start again.
        self.heartbeats = {seen.holder.id: self.heartbeats.get(seen.holder.id, 0) for seen in holders}
        held = sorted((job, seen.holder.id) for seen in holders for job in seen.jobs)
        same("holders and jobs", held, sorted((r.id, str(r.holder)) for r in records if r.state == State.RUNNING))
        for queue in stats:
            of_queue = [record for record in records if record.queue == queue.name]
            counts = {state: number for state, number in queue.counts.items() if number}
            same(f"counts of {queue.name}", counts, dict(Counter(str(record.state) for record in of_queue)))
            due = [record.run_at for record in of_queue if record.state == State.QUEUED]
            same(f"oldest of {queue.name}", queue.oldest, min(due, default=None))
        must({record.queue for record in records} <= {queue.name for queue in stats}, "a queue is missing in stats")

    def _check_job(self, record: Record) -> None:
        last = self.last_claim.get(record.id)
        must(record.attempt <= self.claims[record.id], f"{record.id} has more attempts than claims")
        must(record.fence == (last.fence if last else 0), f"the fence of {record.id} is not that of its last claim")
        if record.state == State.RUNNING:
            must(last and last.token == record.token, f"{record.id} runs with a token that no claim returned")
        before = self.ended.get(record.id)
        if before is not None and record.id not in self.retried:
            same(f"the end of {record.id}", (record.state, record.finished_at), before)


def _by_id(holders: list[HolderInfo]) -> list[HolderInfo]:
    return sorted(holders, key=lambda seen: seen.holder.id)


async def _views(store: Store, index: int | None, *, exact: bool) -> dict[str, object]:
    """Other views of the same jobs, or sums, in which a difference stays visible: the one at `index`, or all."""
    views: dict[str, Callable[[], Awaitable[object]]] = {
        f"find {where}": partial(_matching, store, where) for where in WHERES
    }
    views["get"] = partial(_got, store)
    views["key owners"] = partial(store.key_owners, [f"{head}{key}" for head in ("", FREE_KEY) for key in KEYS])
    views["minutes"] = partial(_counted, store, exact=exact)
    views["ended"] = partial(_ended, store)
    if exact:
        views["now"] = store.now
    names = list(views)
    return {name: await views[name]() for name in (names if index is None else [names[index % len(names)]])}


async def _matching(store: Store, where: Where) -> list[str]:
    return [record.id for record in await every(store, where, page=5)]


async def _got(store: Store) -> bool:
    """Whether get and find return the same records."""
    jobs = await every(store)
    return await store.get([record.id for record in jobs]) == jobs


async def _ended(store: Store) -> list[str]:
    return sorted(await records_of(store, "ended"))


async def _counted(store: Store, *, exact: bool) -> dict[tuple[object, ...], tuple[int, ...]]:
    minutes = await store.stats_by_minute(0)
    if exact:
        return {(m.at, m.queue, m.task, m.outcome): (m.count, m.waited, m.ran, *m.waits, *m.runs) for m in minutes}
    counts: Counter[tuple[object, ...]] = Counter()
    for minute in minutes:
        assert sum(minute.waits) == sum(minute.runs) == minute.count
        counts[minute.queue, minute.task, minute.outcome] += minute.count
    return {place: (count,) for place, count in counts.items()}


def _shown(seen: HolderInfo, *, aged: bool) -> tuple[object, ...]:
    return (seen.holder, seen.alive, sorted(seen.jobs), seen.age if aged else None)
