"""Prefetch: claims more jobs than slots are free, so that threads with short functions do not wait for commits.

1. Only jobs that are likely to start within 20 ms: plain functions whose last runs were short, no limits, no batches.
   If such a claim brings any other job, it is released at once, and the worker does not prefetch for a while.
2. A job that has not started 100 ms after its claim is released. No thread starts it after that, even in a process
   that was stopped meanwhile: its lease may be over.
3. If the process crashes, its supervisor releases the jobs that had not started, without charging an attempt
   (`unstarted.py`). A worker without a supervisor does not prefetch.
4. While enough jobs wait for threads, outcomes are collected and written together, at most 5 ms later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.clock import MICROS, Clock
from ..core.job import Record
from .run import Run
from .run.ahead import Ahead
from .run.thread import Threads
from .slots import Slots
from .unstarted import ENTRIES, Unstarted

if TYPE_CHECKING:
    from ..tasks.task import Task

START_WITHIN = 0.02
"""Seconds: as many jobs are claimed ahead as threads have started in this time."""
START_DEADLINE = 0.1
"""Seconds after which a job that has not started is released, so that other workers can run it."""
SHORT_RUN = 0.005
"""Seconds: a task is short if more than half of its last 32 runs were."""
PREFETCH_BYTES = 4 * 1024**2
"""Bytes of payloads, about, that are claimed ahead."""
PREFETCH_REST = 5.0
"""Seconds without prefetch after a claim brought a job that could not wait here."""
_RUNS_SEEN = (1 << 32) - 1
"""Bits of the last 32 runs of a task."""


class Prefetch:
    """How many jobs a worker claims ahead, and which of them may wait for a thread."""

    def __init__(self, clock: Clock, threads: Threads, slots: Slots, unstarted: Unstarted | None) -> None:
        self._clock = clock
        self._threads = threads
        self._slots = slots
        self._unstarted = unstarted
        self._loop = asyncio.get_running_loop()
        self._limit = 0
        """Jobs that may wait for a thread now."""
        self._counted, self._counted_at = 0, clock.monotonic()
        self._rest_until = 0.0
        self._short: dict[str, int] = {}
        """The last runs of each task, one bit each: whether the run was short."""
        self._payload = 0
        """Bytes of the largest payload of late."""
        self._waiting: deque[Run] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def room(self) -> int:
        """How many jobs to claim now; 0 while enough of them wait for threads."""
        if self._unstarted is not None:
            self._adapt()
        return 0 if self.enough() else self._slots.free(self._limit)

    def enough(self) -> bool:
        """Whether threads have enough to do while others end."""
        return self._limit > 0 and self._threads.waiting > self._limit // 2

    def ran(self, run: Run) -> None:
        """A run has ended."""
        if run.took is not None:
            self._payload = max(len(run.record.payload), self._payload * 15 // 16)
            bits = self._short.get(run.record.task, 0) << 1 | (run.took < SHORT_RUN)
            self._short[run.record.task] = bits & _RUNS_SEEN

    def keep(self, run: Run, task: Task[..., Any] | None) -> bool:
        """Let a claim wait for a thread, if its job is one that may."""
        record = run.record
        if self._unstarted is None or self._unstarted.full or task is None or not self._may_wait(record, task):
            self._rest()
            return False
        left = partial(self._unstarted.remove, self._unstarted.add(record))
        run.ahead = Ahead(self._clock, self._clock.boot() + int(START_DEADLINE * MICROS), left)
        self._waiting.append(run)
        if self._timer is None:
            self._timer = self._loop.call_later(START_DEADLINE / 2, self._check)
        return True

    def _may_wait(self, record: Record, task: Task[..., Any]) -> bool:
        short = _is_short(self._short.get(task.name, 0))
        simple = record.extra is None and record.limit_key is None and not record.quarantined and task.batch is None
        return short and simple and task.run_in == "thread"

    def _adapt(self) -> None:
        now = self._clock.monotonic()
        passed = now - self._counted_at
        if passed < START_WITHIN:
            return
        calls = self._threads.answered
        likely = round((calls - self._counted) * START_WITHIN / passed)
        self._counted, self._counted_at = calls, now
        wanted = now >= self._rest_until and any(map(_is_short, self._short.values()))
        self._limit = min(ENTRIES, likely, PREFETCH_BYTES // max(1, self._payload)) if wanted else 0

    def _rest(self) -> None:
        self._limit, self._rest_until = 0, self._clock.monotonic() + PREFETCH_REST

    def _check(self) -> None:
        """Report the jobs that have started, and release the jobs that have not started in time."""
        waiting, now = self._waiting, self._clock.boot()
        self._timer = None
        while waiting:
            run = waiting[0]
            assert run.ahead is not None
            if run.key in self._slots.runs and run.ahead.began is None:
                if now <= run.ahead.deadline:
                    break
                if run.ahead.take_back():
                    run.why = run.why or "release"
                    self._rest()
            elif run.key in self._slots.runs:
                run.ahead.announce()
            waiting.popleft()
        if waiting:
            self._timer = self._loop.call_later(START_DEADLINE / 2, self._check)


def _is_short(runs: int) -> bool:
    """Whether more than half of the last runs were short."""
    return runs.bit_count() > 16
