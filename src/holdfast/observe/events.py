"""One stream of events around the seam, so that no engine forgets one: logged, and handed to whoever listens.

Every event has a name and the fields `job_id`, `job_type`, `attempt`, `worker_id` where they apply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..job import Change, NewJob, Record, Settlement, State

Listener = Callable[[str, dict[str, Any]], object]
logger = logging.getLogger("holdfast")

_SETTLED = {
    "succeeded": ("job_succeeded", logging.INFO),
    "failed": ("job_failed", logging.WARNING),
    "dead": ("job_dead", logging.ERROR),
    "cancelled": ("job_cancelled", logging.INFO),
    "released": ("job_released", logging.INFO),
    "snoozed": ("job_snoozed", logging.INFO),
    "lost": ("job_lost", logging.WARNING),
}


class Events:
    """Where events go. Costs a comparison per event while nobody listens."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    def emit(self, name: str, level: int, **fields: Any) -> None:
        """Log an event, and hand it to the listeners; a listener that raises harms nobody."""
        if logger.isEnabledFor(level):
            logger.log(level, "%s %s", name, _Words(fields), extra={"event": name, "fields": fields})
        for listener in self.listeners:
            try:
                listener(name, fields)
            except Exception:
                logger.exception("a listener of %s raised", name)

    def _wanted(self, level: int) -> bool:
        return bool(self.listeners) or logger.isEnabledFor(level)

    def created(self, job: NewJob) -> None:
        """A job was stored."""
        if self._wanted(logging.DEBUG):
            self.emit("job_created", logging.DEBUG, job_id=job.id, job_type=job.task, queue=job.queue)

    def idempotent(self, job: NewJob, id: str) -> None:
        """An enqueue met the job that its key stands for."""
        if self._wanted(logging.DEBUG):
            self.emit("idempotent_submission", logging.DEBUG, job_id=id, job_type=job.task, queue=job.queue)

    def claimed(self, record: Record) -> None:
        """A worker holds a job now."""
        if self._wanted(logging.DEBUG):
            self.emit("lease_acquired", logging.DEBUG, **_about(record), fence=record.fence)

    def started(self, record: Record) -> None:
        """A task's code is about to run."""
        if self._wanted(logging.DEBUG):
            self.emit("handler_start", logging.DEBUG, **_about(record))

    def settled(self, record: Record, end: Settlement) -> None:
        """A claim has ended, and the store has written how."""
        name, level = _SETTLED[end.outcome]
        if self._wanted(level):
            fields = _about(record)
            if end.error is not None:
                fields["error"] = end.error
            if end.state == State.FAILED:
                fields["retry_in"] = end.delay
            self.emit(name, level, **fields)

    def refused(self, record: Record) -> None:
        """A claim's end came too late: somebody else had ended it."""
        if self._wanted(logging.WARNING):
            self.emit("lease_lost", logging.WARNING, **_about(record), fence=record.fence)

    def swept(self, records: Sequence[Record]) -> None:
        """Lost claims were settled."""
        if records and self._wanted(logging.INFO):
            self.emit("sweep_complete", logging.INFO, requeued=len(records), job_ids=[record.id for record in records])

    def changed(self, record: Record, change: Change) -> None:
        """An operator changed a job."""
        if self._wanted(logging.INFO):
            patch = change.patch
            if patch is None:
                name = "job_deleted"
            elif patch.cancel is True:
                name = "cancel_requested"
            elif patch.state == State.CANCELLED:
                name = "job_cancelled"
            elif patch.state == State.QUEUED:
                name = "job_retried"
            else:
                name = "job_annotated"
            self.emit(name, logging.INFO, job_id=record.id, job_type=record.task)


class _Words:
    """Fields as text, made only where a handler prints them plainly."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._fields.items())


def _about(record: Record) -> dict[str, Any]:
    return {"job_id": record.id, "job_type": record.task, "attempt": record.attempt, "worker_id": record.holder}
