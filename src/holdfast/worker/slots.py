"""A worker's slots: what runs in them, how many are free, and who is to be told when that changes."""

from __future__ import annotations

import asyncio

from .run import Batch, Run

Key = tuple[str, int]
"""A claim: job id and fence."""


class Slots:
    """At most `size` claims are held at any moment: running here, or ended here and not yet written."""

    def __init__(self, size: int, *, isolate_quarantined: bool = False) -> None:
        self.size = size
        self.isolate_quarantined = isolate_quarantined
        """Quarantined jobs run in processes of their own, so that nothing here has to make way for them."""
        self.runs: dict[Key, Run] = {}
        self.settling: set[Key] = set()
        """Ended here, not yet answered by the store. Their slots are free: the end is written before the next claim."""
        self.owed = 0
        """Ended here, but the store refused or did not answer: these keep their slots."""
        self._quarantined = 0
        self._batches: dict[Batch, int] = {}
        """How many runs of each batch there are: together they take one slot."""
        self._riding = 0
        """Runs beyond the first of their batch."""
        self.freed = asyncio.Event()
        self.quiet = asyncio.Event()
        """Nothing runs, and nothing waits to be written."""

    def __bool__(self) -> bool:
        return bool(self.runs)

    def free(self) -> int:
        """How many jobs may be claimed now; none while quarantined jobs run, which were claimed together and run apart."""
        return 0 if self._quarantined else self.size - len(self.runs) + self._riding - self.owed

    def add(self, run: Run) -> None:
        """A claim takes a slot."""
        self.runs[run.key] = run
        if run.batch is not None:
            before = self._batches.get(run.batch, 0)
            self._batches[run.batch] = before + 1
            self._riding += before > 0
        if run.record.quarantined and not self.isolate_quarantined:
            self._quarantined += 1

    def remove(self, run: Run) -> bool:
        """A run has ended; False if its claim was given up before."""
        if self.runs.pop(run.key, None) is None:
            return False
        if run.batch is not None:
            left = self._batches.pop(run.batch) - 1
            if left:
                self._batches[run.batch] = left
                self._riding -= 1
        if run.record.quarantined and not self.isolate_quarantined:
            self._quarantined -= 1
        self.freed.set()
        return True

    def note_quiet(self) -> None:
        """Tell whoever waits for the end of everything, if this is it."""
        if not self.runs and not self.settling:
            self.quiet.set()
