"""Warns, with the stack, when a task blocks the event loop of its worker."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

from .run.batch import Batch
from .run.runner import Runner

logger = logging.getLogger("holdfast")
_RUNS = (Runner.run.__code__, Batch._run.__code__)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # its own folder
"""The functions below which tasks are on the stack."""
BLOCKED = 1.0
"""Seconds for which the loop may not answer."""


class LoopGuard:
    """A thread that asks the loop for an answer, once a second while jobs run; idle workers are left alone."""

    def __init__(self, running: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = running
        self._loop_thread = threading.get_ident()
        self._answered = threading.Event()
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """A job starts on the loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._guard, name="holdfast-loop-guard", daemon=True)
            self._thread.start()
        if not self._wanted.is_set():  # setting it costs a lock, for each job
            self._wanted.set()

    def stop(self) -> None:
        self._stopped.set()
        self._wanted.set()
        self._answered.set()

    def _guard(self) -> None:
        while self._wanted.wait() and not self._stopped.is_set():
            self._answered.clear()
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                return  # the loop was closed under the worker
            if not self._answered.wait(BLOCKED):
                run = self._run_on_the_stack()
                # Twice the same: on a busy machine, the loop may be late though no task blocks it.
                if run is not None and not self._answered.wait(BLOCKED / 4) and self._run_on_the_stack() is run:
                    self._report(run)
                self._answered.wait()
            self._stopped.wait(BLOCKED)

    def _answer(self) -> None:
        if not self._stopped.is_set() and not self._running():
            self._wanted.clear()
        self._answered.set()

    def _run_on_the_stack(self) -> FrameType | None:
        """The frame of a run whose code the loop's thread executes now; a run that awaits something has none."""
        frame = self._frame()
        while frame is not None and frame.f_code not in _RUNS:
            frame = frame.f_back
        return frame

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented

    def _report(self, run: FrameType) -> None:
        frames = list(traceback.walk_stack(self._frame()))
        below = [frame for frame, _ in frames]
        task = frames[: below.index(run)] if run in below else frames
        stack = "".join(traceback.StackSummary.extract(reversed(task)).format())
        logger.warning(
            "a task blocks the event loop for more than %g s, so other jobs of this worker wait: use await, or a plain"
            " function (def), which runs in a thread. Stack of the event loop:\n%s",
            BLOCKED,
            stack.rstrip(),
        )
