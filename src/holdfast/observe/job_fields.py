"""Which job the current code runs for: the fields of its log lines, whatever logger a task uses.

A context variable: coroutines, thread tasks and child processes have their own job, and a task that logs nothing pays
for one assignment. The fields are read when a line is written.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

from ..core.internal import flow_of
from ..core.job import Record
from .trace_ids import trace_id_of

NAMES = ("job_id", "job_type", "queue", "attempt", "worker_id", "trace_id", "flow")
"""The fields of a job, as printed and as attributes of a log record."""
_running: ContextVar[Record | str | None] = ContextVar("holdfast_job", default=None)


def run_for(job: Record | str | None) -> None:
    """From now on, the current context runs a job; or one call for jobs of the task of this name; or none."""
    _running.set(job)


def fields_of(job: Record) -> dict[str, Any]:
    """The fields of a job by their names; None for one that it does not have."""
    values = (job.id, job.task, job.queue, job.attempt, job.holder, trace_id_of(job.meta), flow_of(job))
    return dict(zip(NAMES, values, strict=True))


def fields_now() -> dict[str, Any]:
    """The fields of the job that the current context runs; {} outside of a job."""
    job = _running.get()
    if job is None:
        return {}
    return {"job_type": job} if isinstance(job, str) else fields_of(job)


def fields_for(record: logging.LogRecord) -> dict[str, Any]:
    """The job's fields of a log record: its own attributes (`ctx.log`), else those of the job that runs here."""
    about, job = record.__dict__, fields_now()
    return {name: value for name in NAMES if (value := about.get(name, job.get(name))) is not None}


class JobFields(logging.Filter):
    """For a log handler of your own: gives each record the fields of its job as attributes; None outside of a job.

    An attribute that the record already has is kept. Passes every record.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        about = record.__dict__
        fields = about.get("fields") or fields_now()
        for name in NAMES:
            about.setdefault(name, fields.get(name))
        return True
