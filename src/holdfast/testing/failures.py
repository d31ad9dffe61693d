"""Errors of the jobs that run in a test: kept for the test, and logged with their tracebacks, which pytest shows."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from ..core.errors import JobFailed
from ..core.job import Record, State
from ..tasks.hooks import RunHooks
from ..views import Job

logger = logging.getLogger("holdfast")


class Failures:
    """An `on_error` hook."""

    def __init__(self) -> None:
        self._errors: dict[str, BaseException] = {}
        """The last exception of each job that raised one in this process."""

    def __call__(self, error: BaseException, job: Job) -> None:
        self._errors[job.id] = error
        logger.error("attempt %d of job %s (task %r) failed", job.attempt, job.id, job.task, exc_info=error)

    def raise_first(self, failed_jobs: list[Record]) -> None:
        """Raise JobFailed for the first of the jobs that ended dead or were refused, from the exception of its task."""
        if not failed_jobs:
            return
        first = failed_jobs[0]
        cause = self._errors.get(first.id)
        verb = "failed" if first.state == State.DEAD else "was refused"
        failed = JobFailed(first.id, first.error or "dead", None if cause else first.traceback, verb=verb)
        failed.traceback = first.traceback
        failed.add_note(f"It is a job of task {first.task!r}. If the test expects this: bench.work(check=False).")
        if len(failed_jobs) > 1:
            failed.add_note(f"{len(failed_jobs) - 1} more ended dead or were refused: see the log.")
        raise failed from cause


@contextmanager
def failures_logged(hooks: RunHooks) -> Generator[Failures]:
    """While the block runs, errors of an app's jobs are logged, once."""
    known = next((hook for hook in hooks.on_error if isinstance(hook, Failures)), None)
    failures = known or Failures()
    if known is None:
        hooks.on_error.append(failures)
    try:
        yield failures
    finally:
        if known is None:
            hooks.on_error.remove(failures)
