"""A Hypothesis state machine: the same operations on any store and on the memory store, and every answer compared.

Operations that a Batch carries gather in `self.batch`; each rule says whether its own leaves at once or waits to leave
together with the next. What is chosen (a claim to settle, a job to change) is chosen among all that were ever seen,
so stale fences, ended jobs and snapshots that are out of date come by themselves.

Times are in units of the harness: durations are odd halves and steps are whole, so that nothing ever falls on a
boundary, and a store whose time has to be waited for agrees with a reference whose time is set.

Needs Hypothesis. HOLDFAST_EXAMPLES and HOLDFAST_STEPS make longer runs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ..clock import SystemClock
from ..job import TERMINAL, WAITING, Change, Claims, Inserted, Lost, NewJob, Record, Settlement, State
from ..store.memory import MemoryStore
from ..store.protocol import Answers, Batch, Store
from . import build
from .clock import ManualClock
from .conformance.harness import Harness, ManualTimeHarness
from .twins import Sight, plain, same
from .verbs import every

T = TypeVar("T")

QUEUES = ("red", "blue")
TASKS = ("x", "y")
HOLDERS = ("ann", "bob", "cyd")
IDS = ("id-1", "id-2", "id-3")
KEYS = ("k1", "k2", "k3")
LEASE = 5.5
DURATIONS = (0.0, 2.5, 20.5)
STEPS = (1, 3, 7, 30)

picks = st.integers(0, 7)
"""Which of the things seen so far, counted back from the newest."""
leaving = st.booleans()
"""Whether an operation leaves at once, or together with the next."""


class Pair(NamedTuple):
    """One thing as the store under test and as the reference knows it: numbers may differ, meaning may not."""

    ours: Any
    reference: Any


class StoreMachine(RuleBasedStateMachine):
    """Drives a store beside the reference. `harness_class` is set by `state_machine`."""

    harness_class: ClassVar[type[Harness]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-machine-"))
        self.harness = self.harness_class(self.folder)
        self.exact = isinstance(self.harness, ManualTimeHarness)
        self.clock = self.harness.clock if isinstance(self.harness, ManualTimeHarness) else ManualClock()
        self.unit = self.harness.unit
        self.reference: Store = MemoryStore(self.clock)
        self.store = self.run(self.harness.make())
        self.real = SystemClock()
        self.stepped_at = self.real.monotonic()
        self.numbers = 0
        self.jobs: list[str] = []
        self.news: list[NewJob] = []
        self.claims: list[Pair] = []
        self.lost: list[Pair] = []
        self.snapshots: list[Record] = []
        self.sent: list[Pair] = []
        self.batch, self.twin = Batch([], [], [], [], []), Batch([], [], [], [], [])
        self.sight = Sight()

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)

    def number(self) -> int:
        """A fresh number for an id, a token or a nonce; the same in both stores."""
        self.numbers += 1
        return self.numbers

    def ask_both(self, call: Callable[[Store], Coroutine[Any, Any, T]]) -> tuple[T, T]:
        return self.run(call(self.store)), self.run(call(self.reference))

    # -- operations of a batch

    def put(self, kind: str, ours: Any, reference: Any, *, leave: bool) -> None:
        getattr(self.batch, kind).append(ours)
        getattr(self.twin, kind).append(reference)
        if leave:
            self.send()

    def send(self) -> None:
        batch, twin = self.batch, self.twin
        if batch == Batch([], [], [], [], []):
            return
        self.batch, self.twin = Batch([], [], [], [], []), Batch([], [], [], [], [])
        known = self.reference_ids()
        ours, reference = self.run(self.store.write(batch)), self.run(self.reference.write(twin))
        self.compare_answers(twin, ours, reference, known)
        for change, made in zip(batch.changes, ours.changes, strict=True):
            self.sight.changed(change, made=made)
        for inserted in ours.inserts:
            if inserted.outcome == "created" and inserted.id not in self.jobs:
                self.jobs.append(inserted.id)
        for mine, theirs in zip(ours.asks, reference.asks, strict=True):
            self.remember_claims(mine, theirs)

    def compare_answers(self, twin: Batch, ours: Answers, reference: Answers, known: set[str]) -> None:
        same("inserts", list[Inserted](ours.inserts), list[Inserted](reference.inserts))
        same("notes", list(ours.notes), list(reference.notes))
        same("changes", list(ours.changes), list(reference.changes))
        # A settlement sent again after its job was removed may be recognised or not: nothing is left to harm.
        there = known & self.reference_ids()
        for end, mine, theirs in zip(twin.settles, ours.settles, reference.settles, strict=True):
            if end.id in there:
                same(f"settle {end}", mine, theirs)

    def remember_claims(self, ours: Claims, reference: Claims) -> None:
        same("claimed", [self.plain(r) for r in ours.records], [self.plain(r) for r in reference.records])
        same("suspect_waiting", ours.suspect_waiting, reference.suspect_waiting)
        same("due_in is told", ours.due_in is None, reference.due_in is None)
        if self.exact:
            same("due_in", ours.due_in, reference.due_in)
        for mine, theirs in zip(ours.records, reference.records, strict=True):
            self.sight.claimed(mine)
            self.claims.append(Pair(mine, theirs))

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
    ) -> None:
        id, nonce = (chosen, self.number()) if chosen else (f"job-{self.number()}", 0)
        delay *= self.unit
        options: dict[str, Any] = {"queue": queue, "priority": priority, "delay": delay, "key": key, "nonce": nonce}
        new = build.new_job(id, task=task, payload=payload, max_depth=depth, tags=(task,), meta={"n": 1}, **options)
        self.news.append(new)
        self.put("inserts", new, new, leave=leave)

    @precondition(lambda self: self.news)
    @rule(leave=leaving, which=picks)
    def insert_again(self, *, leave: bool, which: int) -> None:
        new = newest(self.news, which)
        self.put("inserts", new, new, leave=leave)

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
        self.put("asks", ask, ask, leave=leave)

    def holder(self, name: str) -> Any:
        return build.holder(name, LEASE * self.unit)

    @precondition(lambda self: self.claims)
    @rule(
        leave=leaving,
        which=picks,
        forge=st.sampled_from((None, None, None, None, "fence", "token")),
        words=st.sampled_from(({"progress": b"p"}, {"checkpoint": b"c"}, {"pid": 7}, {"meta": {"m": 2}})),
    )
    def note(self, *, leave: bool, which: int, forge: str | None, words: dict[str, Any]) -> None:
        self.put("notes", *self.of_claim(which, forge, lambda claim: build.says(claim, **words)), leave=leave)

    def of_claim(self, which: int, forge: str | None, make: Callable[[Record], T]) -> tuple[T, T]:
        """The same word about one claim, for each of the two stores."""
        ours, reference = newest(self.claims, which)
        if forge is not None:
            ours = msgspec.structs.replace(ours, **{forge: getattr(ours, forge) + 1})
            reference = msgspec.structs.replace(reference, **{forge: getattr(reference, forge) + 1})
        return make(ours), make(reference)

    @precondition(lambda self: self.claims)
    @rule(
        leave=leaving,
        which=picks,
        forge=st.sampled_from((None, None, None, None, None, "fence", "token")),
        how=st.sampled_from(("succeeded", "failed", "dead", "released", "snoozed", "suspected", "cancelled")),
        delay=st.sampled_from(DURATIONS),
        keep=st.sampled_from((None, *DURATIONS)),
        key_keep=st.sampled_from(DURATIONS),
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
    ) -> None:
        options = {"nonce": self.number(), "keep": keep if keep is None else keep * self.unit}
        options |= {"cancelled_keep": options["keep"], "key_keep": key_keep * self.unit}
        makers: dict[str, Callable[[Record], Settlement]] = {
            "succeeded": lambda claim: build.succeeded(claim, b"r", **options),
            "failed": lambda claim: build.failed(claim, delay * self.unit, **options),
            "dead": lambda claim: build.dead(claim, **options),
            "released": lambda claim: build.released(claim, **options),
            "snoozed": lambda claim: build.snoozed(claim, delay * self.unit, **options),
            "suspected": lambda claim: build.released(claim, suspect=True, deaths=1, **options),
            "cancelled": lambda claim: build.cancelled(claim, **options),
        }
        self.put_end(*self.of_claim(which, forge, makers[how]), leave=leave)

    def put_end(self, ours: Settlement, reference: Settlement, *, leave: bool) -> None:
        self.sent.append(Pair(ours, reference))
        self.put("settles", ours, reference, leave=leave)

    @precondition(lambda self: self.sent)
    @rule(leave=leaving, which=picks)
    def settle_again(self, *, leave: bool, which: int) -> None:
        self.put("settles", *newest(self.sent, which), leave=leave)

    @precondition(lambda self: self.lost)
    @rule(leave=leaving, which=picks, bury=st.booleans())
    def settle_lost(self, *, leave: bool, which: int, bury: bool) -> None:
        nonce = self.number()

        def end(lost: Lost) -> Settlement:
            if bury:
                return build.dead(lost.record, seen_beat=lost.beat, nonce=nonce, keep=None)
            return build.swept(lost, nonce=nonce)

        ours, reference = newest(self.lost, which)
        self.put_end(end(ours), end(reference), leave=leave)

    @precondition(lambda self: self.jobs)
    @rule(
        leave=leaving,
        which=picks,
        what=st.sampled_from(("cancel", "retry", "delete", "meta", "put_off", "fail")),
        keep=st.sampled_from((None, *DURATIONS)),
        stale=st.sampled_from((False, False, False, True)),
    )
    def change(self, *, leave: bool, which: int, what: str, keep: float | None, stale: bool) -> None:
        if stale and self.snapshots:
            seen = newest(self.snapshots, which)
        else:
            seen = self.run(self.reference.get([newest(self.jobs, which)]))[0]
        if seen is None:
            return
        self.snapshots.append(seen)
        change = self.wish(seen, what, keep if keep is None else keep * self.unit)
        if change is not None:
            self.put("changes", change, change, leave=leave)

    def wish(self, seen: Record, what: str, keep: float | None) -> Change | None:
        """A change that the core could ask for in this state, or None."""
        key_keep = 2.5 * self.unit
        if what == "delete":
            return build.deletion(seen)
        if what == "cancel" and seen.state not in TERMINAL:
            ends: dict[str, Any] = {} if seen.state == State.RUNNING else {"keep": keep, "key_keep": key_keep}
            return build.cancellation(seen, **ends)
        if what == "retry" and seen.state in TERMINAL:
            return build.retrial(seen)
        if what == "meta" and seen.state not in TERMINAL:
            return build.change(seen, meta={"changed": self.number()})
        if what == "put_off" and seen.state in WAITING:
            return build.change(seen, state=State.SCHEDULED, delay=2.5 * self.unit)
        if what == "fail" and seen.state == State.RUNNING:
            return build.change(seen, state=State.DEAD, error="monitor", keep=keep, key_keep=key_keep)
        return None

    @rule()
    def flush(self) -> None:
        self.send()

    # -- everything else

    @rule(names=st.lists(st.sampled_from(HOLDERS), min_size=1, max_size=3, unique=True))
    def beat(self, *, names: list[str]) -> None:
        self.send()
        ours, reference = self.ask_both(lambda store: store.beat([self.holder(name) for name in names]))
        for name, mine, theirs in zip(names, ours, reference, strict=True):
            held = [sorted((h.id, h.fence, h.token, h.cancel) for h in beat.held) for beat in (mine, theirs)]
            same(f"held by {name}", held[0], held[1])
            self.sight.beaten(name, mine.beat)

    @rule(name=st.sampled_from(HOLDERS))
    def leave(self, *, name: str) -> None:
        self.send()
        self.ask_both(lambda store: store.leave([name]))
        self.sight.beats.pop(name, None)  # one that left without jobs is forgotten, and counts from the start again

    @rule(name=st.sampled_from((None, None, *HOLDERS)))
    def sweep(self, *, name: str | None) -> None:
        self.send()
        ours, reference = self.ask_both(lambda store: store.expired(1000, name))
        mine, theirs = ({lost.record.id: lost for lost in answer} for answer in (ours, reference))
        same("lost", sorted(mine), sorted(theirs))
        for id, lost in mine.items():
            same(f"lost {id}", self.plain(lost.record), self.plain(theirs[id].record))
            self.lost.append(Pair(lost, theirs[id]))

    @rule(step=st.sampled_from(STEPS))
    def pass_time(self, *, step: int) -> None:
        self.send()
        seconds = step * self.unit
        if self.exact:
            return self.clock.advance(seconds)
        # The reference knows only of whole steps: what the operations took since the last one is not waited for again.
        self.clock.advance(seconds)
        self.stepped_at += seconds
        return self.run(self.harness.pass_time(max(0.0, self.stepped_at - self.real.monotonic())))

    @rule(queue=st.sampled_from(QUEUES), on=st.booleans())
    def pause(self, *, queue: str, on: bool) -> None:
        self.send()
        ours, reference = self.ask_both(lambda store: store.put_record("pause", queue, b"{}" if on else None))
        same("put_record", ours, reference)

    @rule()
    def tidy(self) -> None:
        self.send()
        ours, reference = self.ask_both(lambda store: store.tidy(1000))
        same("tidied", ours, reference)
        for name in set(self.sight.beats) - {seen.holder.id for seen in self.run(self.store.holders())}:
            del self.sight.beats[name]

    @rule()
    def reopen(self) -> None:
        self.send()
        self.store = self.run(self.harness.reopen(self.store))

    # -- what must hold after every step

    @invariant()
    def both_stores_look_the_same(self) -> None:
        if self.batch == Batch([], [], [], [], []):
            self.run(self.sight.compare(self.store, self.reference, exact=self.exact))

    def reference_ids(self) -> set[str]:
        return {record.id for record in self.run(every(self.reference))}

    def plain(self, record: Record) -> dict[str, Any]:
        return plain(record, self.clock.now(), exact=self.exact)

    def teardown(self) -> None:
        try:
            self.run(self.harness.close())
        finally:
            self.runner.close()
            shutil.rmtree(self.folder, ignore_errors=True)


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
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    return case
