"""A worker's slots: what runs in them, how many are free, and the events that signal changes."""

from __future__ import annotations

import asyncio

from .run import Batch, Run

Key = tuple[str, int]
"""A claim: job id and fence."""


class Slots:
    """At most `size` claims at any moment: running here, or ended here and not yet written."""

    def __init__(self, size: int, *, isolate_quarantined: bool = False) -> None:
        self.size = size
        self.isolate_quarantined = isolate_quarantined
        """Quarantined jobs run in their own processes, so that other jobs need not wait for them."""
        self.closed = False
        """No more jobs are claimed: the worker is quiet."""
        self.runs: dict[Key, Run] = {}
        self.settling: set[Key] = set()
        """Ended here, settlement not yet answered. Their slots are free: settlements precede the next claim."""
        self.owed = 0
        """Ended here, but the settlement failed and is repeated: these keep their slots."""
        self._quarantined = 0
        self._batches: dict[Batch, int] = {}
        """Number of runs of each batch; a batch takes one slot."""
        self._batch_extra = 0
        """Runs beyond the first of their batch."""
        self.freed = asyncio.Event()
        self.quiet = asyncio.Event()
        """Set when nothing runs and no settlement is pending."""

    def __bool__(self) -> bool:
        return bool(self.runs)

    def free(self, ahead: int = 0) -> int:
        """How many jobs may be claimed now, so many ahead; 0 while it is closed, or quarantined jobs run here."""
        if self._quarantined or self.closed:
            return 0
        return self.size + ahead - len(self.runs) + self._batch_extra - self.owed

    def add(self, run: Run) -> None:
        """A claim takes a slot."""
        self.runs[run.key] = run
        if run.batch is not None:
            before = self._batches.get(run.batch, 0)
            self._batches[run.batch] = before + 1
            self._batch_extra += before > 0
        if run.record.quarantined and not self.isolate_quarantined:
            self._quarantined += 1

    def remove(self, run: Run) -> bool:
        """A run has ended; False if its claim was settled before."""
        if self.runs.pop(run.key, None) is None:
            return False
        if run.batch is not None:
            left = self._batches.pop(run.batch) - 1
            if left:
                self._batches[run.batch] = left
                self._batch_extra -= 1
        if run.record.quarantined and not self.isolate_quarantined:
            self._quarantined -= 1
        self.freed.set()
        return True

    def note_quiet(self) -> None:
        """Set `quiet` if nothing runs and no settlement is pending."""
        if not self.runs and not self.settling:
            self.quiet.set()
