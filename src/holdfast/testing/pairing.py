"""A store and the reference: the same operations on both, and every answer compared."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from ..core.clock import SystemClock
from ..core.job import Record
from ..core.operations import Claims
from ..store.protocol import Answers, Batch, Store
from ..store.reference.memory import MemoryStore
from .clock import ManualClock
from .conformance.harness import Harness, ManualTimeHarness
from .twins import Sight, plain, same
from .verbs import every

T = TypeVar("T")


class Pair(NamedTuple, Generic[T]):
    """The same value from the store under test and from the reference; only numbers of the store may differ."""

    ours: T
    reference: T


async def _pair(ours: Awaitable[T], reference: Awaitable[T]) -> Pair[T]:
    return Pair(await ours, await reference)


def empty_batch() -> Batch:
    return Batch([], [], [], [], [])


class Paired:
    """Both stores, used by blocking code on their own event loop.

    1. `put` collects operations of a Batch, and `send` sends them; their answers are compared.
    2. All claims and inserts are kept, for later operations.
    3. A manual clock is shared by both stores. Else the reference's clock is set, and the store's is waited for.
    """

    def __init__(self, harness: type[Harness]) -> None:
        self._loop = asyncio.new_event_loop()  # a Runner would set its signal handler for every call
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-paired-"))
        self._harness = harness(self._folder)
        self.exact = isinstance(self._harness, ManualTimeHarness)
        self.clock = self._harness.clock if isinstance(self._harness, ManualTimeHarness) else ManualClock()
        self.unit = self._harness.unit
        self.reference: Store = MemoryStore(self.clock)
        self.store = self.run(self._harness.make())
        self._real = SystemClock()
        self._stepped_at = self._real.monotonic()
        self._batch: Pair[Batch] = Pair(empty_batch(), empty_batch())
        self._asked = True
        self.sight = Sight()
        self.jobs: list[str] = []
        self.claims: list[Pair[Record]] = []

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(what)

    def ask(self, call: Callable[[Store], Coroutine[Any, Any, T]]) -> Pair[T]:
        self._asked = True
        return self.run(_pair(call(self.store), call(self.reference)))

    def put(self, kind: str, ours: object, reference: object, *, leave: bool) -> None:
        """Add an operation to the batch; with `leave`, send the batch."""
        for batch, operation in zip(self._batch, (ours, reference), strict=True):
            getattr(batch, kind).append(operation)
        if leave:
            self.send()

    def send(self) -> None:
        sent, self._batch = self._batch, Pair(empty_batch(), empty_batch())
        if sent.ours == empty_batch():
            return
        self._asked = True
        ended = {end.id for end in sent.ours.settles}
        kept = ended & self._reference_ids() if ended else ended
        ours, reference = self.run(_pair(self.store.write(sent.ours), self.reference.write(sent.reference)))
        self._compare(sent.reference, ours, reference, kept & self._reference_ids() if kept else kept)
        for change, made in zip(sent.ours.changes, ours.changes, strict=True):
            self.sight.changed(change, made=made)
        self.jobs += [new.id for new in ours.inserts if new.outcome == "created" and new.id not in self.jobs]
        for mine, theirs in zip(ours.asks, reference.asks, strict=True):
            self._compare_claims(mine, theirs)

    def _reference_ids(self) -> set[str]:
        return {record.id for record in self.run(every(self.reference))}

    def _compare(self, sent: Batch, ours: Answers, reference: Answers, kept: set[str]) -> None:
        same("inserts", list(ours.inserts), list(reference.inserts))
        same("notes", list(ours.notes), list(reference.notes))
        same("changes", list(ours.changes), list(reference.changes))
        for end, mine, theirs in zip(sent.settles, ours.settles, reference.settles, strict=True):
            # A repeat after the removal of its job may be recognised or not: both are allowed.
            if end.id in kept:
                same(f"{end}", mine, theirs)

    def _compare_claims(self, ours: Claims, reference: Claims) -> None:
        same("claimed", [self.plain(r) for r in ours.records], [self.plain(r) for r in reference.records])
        same("quarantined_waiting", ours.quarantined_waiting, reference.quarantined_waiting)
        due = [claims.due_in if self.exact else claims.due_in is not None for claims in (ours, reference)]
        same("due_in", *due)
        for mine, theirs in zip(ours.records, reference.records, strict=True):
            self.sight.claimed(mine)
            self.claims.append(Pair(mine, theirs))

    def plain(self, record: Record) -> dict[str, Any]:
        return plain(record, self.clock.now(), exact=self.exact)

    def look(self, *, whole: bool = False) -> None:
        """Compare the contents, if there was an operation since the last comparison and none is pending."""
        if whole or (self._asked and self._batch.ours == empty_batch()):
            self._asked = False
            self.run(self.sight.compare(self.store, self.reference, exact=self.exact, whole=whole))

    def pass_time(self, seconds: float) -> None:
        self._asked = True
        if self.exact:
            self.run(self._harness.pass_time(seconds))
        else:
            self.clock.advance(seconds)
            # The reference's clock advances by whole steps: time that the operations took is not waited for again.
            self._stepped_at += seconds
            self.run(self._harness.pass_time(max(0.0, self._stepped_at - self._real.monotonic())))

    def reopen(self) -> None:
        self._asked = True
        self.store = self.run(self._harness.reopen(self.store))

    def close(self) -> None:
        try:
            self.run(self._harness.close())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            shutil.rmtree(self._folder, ignore_errors=True)
