"""A Hypothesis state machine: the same operations on any store and on the memory store, and every answer compared.

Operations of a Batch are collected in a batch; each rule decides whether the batch is sent at once or with a later
operation. A claim to settle or a job to change is chosen among all that were ever seen, so that stale fences, ended
jobs and outdated records occur too.

Times are in units of the harness: durations are odd halves and steps are whole, so that nothing falls on a boundary,
and a store with a real clock agrees with a reference with a manual clock.

Needs Hypothesis. HOLDFAST_EXAMPLES and HOLDFAST_STEPS make longer runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ..core.clock import MICROS
from ..core.job import TERMINAL, WAITING, LimitKey, NewJob, Record, State
from ..core.operations import Change, Holder, Lost, Settlement
from ..core.waiting import Waiting
from . import build
from .conformance.harness import Harness
from .pairing import Pair, Paired
from .twins import FREE_KEY, KEYS, same

T = TypeVar("T")

QUEUES = ("red", "blue")
TASKS = ("x", "y")
HOLDERS = ("ann", "bob", "cyd")
IDS = ("id-1", "id-2", "id-3")
LEASE = 5.5
DURATIONS = (0.0, 2.5, 20.5)
LIMIT_KEYS = (
    {"name": "one", "concurrency": 1},
    {"name": "two", "concurrency": 2},
    {"name": "slow", "interval": 2.5},
    {"name": "both", "concurrency": 2, "interval": 2.5, "burst": 2},
)
FAIR = ({"name": "ann", "weight": 1}, {"name": "bob", "weight": 2, "concurrency": 2})
"""Fair order depends on exact times, so these are only for stores with a manual clock."""
STEPS = (1, 3, 7, 30)
ONE, TWO = Waiting("signal", "one"), Waiting("dependency", "two")
ENDS = ("succeeded", "failed", "dead", "released", "snoozed", "quarantined", "cancelled", "blocked")

picks = st.integers(0, 7)
"""An index into the items seen so far, counted back from the newest."""
leaving = st.sampled_from((True, True, False))
"""Whether the batch is sent at once, or with the next operation."""


class StoreMachine(RuleBasedStateMachine):
    """Runs the same operations on a store and on the reference. `state_machine` sets `harness_class`."""

    harness_class: ClassVar[type[Harness]]

    def __init__(self) -> None:
        super().__init__()
        self.both = Paired(self.harness_class)
        self.unit = self.both.unit
        self.numbers = 0
        self.news: list[NewJob] = []
        self.lost: list[Pair[Lost]] = []
        self.snapshots: list[Record] = []
        self.sent: list[Pair[Settlement]] = []

    def number(self) -> int:
        """A fresh number for an id, a token or a nonce; the same in both stores."""
        self.numbers += 1
        return self.numbers

    @initialize(priorities=st.lists(st.sampled_from((-1, 0, 7)), min_size=2, max_size=4), limit=st.integers(0, 3))
    def begin_with_some_work(self, *, priorities: list[int], limit: int) -> None:
        """Insert jobs and claim some of them: most rules need these."""
        for number, priority in enumerate(priorities):
            new = build.new_job(f"first-{number}", queue=QUEUES[0], task=TASKS[number % 2], priority=priority)
            self.news.append(new)
            self.both.put("inserts", new, new, leave=False)
        ask = build.ask(self.holder(HOLDERS[0]), QUEUES[0], limit=limit, token=self.number())
        self.both.put("asks", ask, ask, leave=True)

    # -- operations of a batch

    @rule(
        leave=leaving,
        queue=st.sampled_from(QUEUES),
        task=st.sampled_from(TASKS),
        priority=st.sampled_from((-1, 0, 0, 0, 7)),
        delay=st.sampled_from((0.0, 0.0, 0.0, 2.5, 20.5)),
        key=st.sampled_from((None, None, *KEYS)),
        chosen=st.sampled_from((None, None, None, *IDS)),
        payload=st.sampled_from((b"1", b"1", b"2")),
        depth=st.sampled_from((None, None, None, 3)),
        limit_key=st.sampled_from((None, None, None, *LIMIT_KEYS, *FAIR)),
        waiting_for=st.sampled_from((None, None, None, None, ONE, TWO)),
        unique=st.sampled_from(("", "", "until_start", "until_end", "window")),
    )
    def insert(
        self,
        *,
        leave: bool,
        queue: str,
        task: str,
        priority: int,
        delay: float,
        key: str | None,
        chosen: str | None,
        payload: bytes,
        depth: int | None,
        limit_key: dict[str, Any] | None,
        waiting_for: Waiting | None,
        unique: str,
    ) -> None:
        id, nonce = (chosen, self.number()) if chosen else (f"job-{self.number()}", 0)
        delay *= self.unit
        options: dict[str, Any] = {"queue": queue, "priority": priority, "delay": delay, "key": key, "nonce": nonce}
        options |= {"limit_key": self.limit_key(limit_key), "waiting_for": waiting_for}
        if key is not None and unique:
            options |= {"key": f"{FREE_KEY}{key}", "unique": unique, "window": 2.5 * self.unit}
        new = build.new_job(id, task=task, payload=payload, max_depth=depth, tags=(task,), meta={"n": 1}, **options)
        self.news.append(new)
        self.both.put("inserts", new, new, leave=leave)

    def limit_key(self, like: dict[str, Any] | None) -> LimitKey | None:
        if like is None or ("weight" in like and not self.both.exact):
            return None
        fields: dict[str, Any] = like | {"interval": int(like.get("interval", 0) * self.unit * MICROS)}
        return LimitKey(**fields)

    @precondition(lambda self: self.news)
    @rule(leave=leaving, which=picks)
    def insert_again(self, *, leave: bool, which: int) -> None:
        new = newest(self.news, which)
        self.both.put("inserts", new, new, leave=leave)

    @rule(
        leave=leaving,
        by=st.sampled_from(HOLDERS),
        queues=st.sampled_from((*((queue,) for queue in QUEUES), QUEUES, QUEUES[::-1])),
        limit=st.sampled_from((0, 1, 1, 2, 5)),
        tasks=st.sampled_from((None, None, ("x",), ("y", "z"))),
        busy=st.sampled_from((False, False, True)),
    )
    def claim(
        self,
        *,
        leave: bool,
        by: str,
        queues: tuple[str, ...],
        limit: int,
        tasks: tuple[str, ...] | None,
        busy: bool,
    ) -> None:
        ask = build.ask(self.holder(by), *queues, limit=limit, token=self.number(), tasks=tasks, busy=busy)
        self.both.put("asks", ask, ask, leave=leave)

    def holder(self, name: str) -> Holder:
        return build.holder(name, LEASE * self.unit)

    @precondition(lambda self: self.both.claims)
    @rule(
        leave=leaving,
        which=picks,
        forge=st.sampled_from((None, None, None, None, "fence", "token")),
        words=st.sampled_from(
            (
                {"progress": b"p"},
                {"checkpoint": b"c1", "saves": 1},
                {"checkpoint": b"c2", "saves": 2},
                {"pid": 7},
                {"meta": {"m": 2}},
                {"rest": 2.5},
            )
        ),
    )
    def note(self, *, leave: bool, which: int, forge: str | None, words: dict[str, Any]) -> None:
        if "rest" in words:
            words = {"rest": words["rest"] * self.unit}
        self.both.put("notes", *self.of_claim(which, forge, lambda claim: build.says(claim, **words)), leave=leave)

    def of_claim(self, which: int, forge: str | None, make: Callable[[Record], T]) -> tuple[T, T]:
        """The same operation on one claim, for each of the two stores."""
        ours, reference = newest(self.both.claims, which)
        if forge is not None:
            ours = msgspec.structs.replace(ours, **{forge: getattr(ours, forge) + 1})
            reference = msgspec.structs.replace(reference, **{forge: getattr(reference, forge) + 1})
        return make(ours), make(reference)

    @precondition(lambda self: self.both.claims)
    @rule(
        leave=leaving,
        which=picks,
        forge=st.sampled_from((None, None, None, None, None, "fence", "token")),
        how=st.sampled_from(
            ("succeeded", "failed", "dead", "released", "snoozed", "quarantined", "cancelled", "blocked")
        ),
        delay=st.sampled_from(DURATIONS),
        keep=st.sampled_from((None, *DURATIONS)),
        key_keep=st.sampled_from(DURATIONS),
        waiting_for=st.sampled_from((None, ONE)),
        record_end=st.booleans(),
    )
    def settle(
        self,
        *,
        leave: bool,
        which: int,
        forge: str | None,
        how: str,
        delay: float,
        keep: float | None,
        key_keep: float,
        waiting_for: Waiting | None,
        record_end: bool,
    ) -> None:
        options: dict[str, Any] = {"nonce": self.number(), "keep": keep if keep is None else keep * self.unit}
        options |= {"cancelled_keep": options["keep"], "key_keep": key_keep * self.unit, "record_end": record_end}
        makers: dict[str, Callable[[Record], Settlement]] = {
            "succeeded": lambda claim: build.succeeded(claim, b"r", **options),
            "failed": lambda claim: build.failed(claim, delay * self.unit, **options),
            "dead": lambda claim: build.dead(claim, **options),
            "released": lambda claim: build.released(claim, **options),
            "snoozed": lambda claim: build.snoozed(claim, delay * self.unit, waiting_for=waiting_for, **options),
            "blocked": lambda claim: build.ending(claim, State.BLOCKED, "paused", waiting_for=TWO, **options),
            "quarantined": lambda claim: build.released(
                claim, quarantined=True, crashes=claim.fence % 4 - 2, **options
            ),
            "cancelled": lambda claim: build.cancelled(claim, **options),
        }
        self.put_end(*self.of_claim(which, forge, makers[how]), leave=leave)

    def put_end(self, ours: Settlement, reference: Settlement, *, leave: bool) -> None:
        self.sent.append(Pair(ours, reference))
        self.both.put("settles", ours, reference, leave=leave)

    @precondition(lambda self: self.sent)
    @rule(leave=leaving, which=picks)
    def settle_again(self, *, leave: bool, which: int) -> None:
        self.both.put("settles", *newest(self.sent, which), leave=leave)

    @precondition(lambda self: self.lost)
    @rule(leave=leaving, which=picks, bury=st.booleans())
    def settle_lost(self, *, leave: bool, which: int, bury: bool) -> None:
        nonce = self.number()

        def end(lost: Lost) -> Settlement:
            if bury:
                return build.dead(lost.record, expected_heartbeat=lost.heartbeat, nonce=nonce, keep=None)
            return build.swept(lost, nonce=nonce)

        ours, reference = newest(self.lost, which)
        self.put_end(end(ours), end(reference), leave=leave)

    @precondition(lambda self: self.both.jobs)
    @rule(
        leave=leaving,
        which=picks,
        what=st.sampled_from(("cancel", "retry", "delete", "meta", "delay", "fail", "free", "block", "replace")),
        keep=st.sampled_from((None, *DURATIONS)),
        stale=st.sampled_from((False, False, False, True)),
    )
    def change(self, *, leave: bool, which: int, what: str, keep: float | None, stale: bool) -> None:
        if stale and self.snapshots:
            seen = newest(self.snapshots, which)
        else:
            seen = self.both.run(self.both.reference.get([newest(self.both.jobs, which)]))[0]
        if seen is None:
            return
        self.snapshots.append(seen)
        change = self.possible_change(seen, what, keep if keep is None else keep * self.unit)
        if change is not None:
            self.both.put("changes", change, change, leave=leave)

    def possible_change(self, seen: Record, what: str, keep: float | None) -> Change | None:
        """A change that the core could make in this state, or None."""
        key_keep = 2.5 * self.unit
        if what == "delete":
            return build.deletion(seen)
        if what == "cancel" and seen.state not in TERMINAL:
            ends: dict[str, Any] = {} if seen.state == State.RUNNING else {"keep": keep, "key_keep": key_keep}
            return build.cancellation(seen, **ends)
        if what == "retry" and seen.state in TERMINAL:
            return build.retrial(seen)
        if what == "meta":
            return build.change(seen, meta={"changed": self.number()})
        if what == "delay" and seen.state in WAITING:
            return build.change(seen, state=State.SCHEDULED, delay=2.5 * self.unit)
        if what == "fail" and seen.state == State.RUNNING:
            return build.change(seen, state=State.DEAD, error="monitor", keep=keep, key_keep=key_keep, record_end=True)
        if what == "free" and seen.state == State.BLOCKED:
            return build.change(seen, state=State.QUEUED)
        if what == "block" and seen.state == State.BLOCKED:
            return build.change(seen, waiting_for=TWO)
        if what == "block" and seen.state in TERMINAL:
            return build.retrial(seen, state=State.BLOCKED, waiting_for=ONE)
        if what == "replace" and seen.state in WAITING:
            return build.change(seen, payload=b"3", fingerprint="three", extra=b"{}")
        return None

    # -- everything else

    @rule(names=st.lists(st.sampled_from(HOLDERS), min_size=1, max_size=3, unique=True))
    def heartbeat(self, *, names: list[str]) -> None:
        self.both.send()
        ours, reference = self.both.ask(lambda store: store.heartbeat([self.holder(name) for name in names]))
        for name, mine, theirs in zip(names, ours, reference, strict=True):
            held = [sorted((h.id, h.fence, h.token, h.cancel) for h in heartbeat.held) for heartbeat in (mine, theirs)]
            same(f"held by {name}", held[0], held[1])
            self.both.sight.renewed(name, mine.heartbeat)

    @rule(name=st.sampled_from((None, None, *HOLDERS)))
    def sweep(self, *, name: str | None) -> None:
        """List lost claims; `settle_lost` settles them, now or after a new heartbeat of the holder."""
        self.both.send()
        ours, reference = self.both.ask(lambda store: store.expired(1000, name))
        mine, theirs = ({lost.record.id: lost for lost in answer} for answer in (ours, reference))
        same("lost", sorted(mine), sorted(theirs))
        for id, lost in mine.items():
            same(f"lost {id}", self.both.plain(lost.record), self.both.plain(theirs[id].record))
            self.lost.append(Pair(lost, theirs[id]))

    @rule(step=st.sampled_from(STEPS))
    def pass_time(self, *, step: int) -> None:
        self.both.send()
        self.both.pass_time(step * self.unit)

    @rule(
        what=st.sampled_from(("pause", "resume", "resume", "leave", "tidy", "reopen")),
        queue=st.sampled_from(QUEUES),
        name=st.sampled_from(HOLDERS),
    )
    def maintain(self, *, what: str, queue: str, name: str) -> None:
        self.both.send()
        if what == "leave":
            self.both.ask(lambda store: store.leave([name]))
        elif what == "tidy":
            same("tidied", *self.both.ask(lambda store: store.tidy(1000)))
        elif what == "reopen":
            self.both.reopen()
        else:
            value = b"{}" if what == "pause" else None
            same(what, *self.both.ask(lambda store: store.put_record("pause", queue, value)))

    # -- what must hold after every step

    @invariant()
    def both_stores_look_the_same(self) -> None:
        self.both.look()

    def teardown(self) -> None:
        try:
            if sys.exception() is None:  # else a difference was found, or Hypothesis gave up the example
                self.both.send()
                self.both.look(whole=True)
        finally:
            self.both.close()


def newest(things: list[T], which: int) -> T:
    return things[-1 - which % len(things)]


def state_machine(harness: type[Harness]) -> type:
    """The test case for this kind of store; bind it to a name that begins with Test."""
    machine = type(f"{harness.__name__}Machine", (StoreMachine,), {"harness_class": harness})
    case: Any = machine.TestCase
    case.settings = settings(
        max_examples=int(os.environ.get("HOLDFAST_EXAMPLES", "100")),
        stateful_step_count=int(os.environ.get("HOLDFAST_STEPS", "30")),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        print_blob=True,
    )
    return case
