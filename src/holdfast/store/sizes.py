"""About how many bytes an operation writes, so that a batch is bounded by bytes and by count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..core.job import NewJob
from ..core.operations import Change, Note, Settlement
from .protocol import Batch

OPERATION_BYTES = 512
"""Bytes that an operation counts for besides its values: about what its object takes in memory."""

_json = msgspec.json.Encoder().encode


def _meta_bytes(meta: Mapping[str, Any] | msgspec.UnsetType) -> int:
    return len(_json(meta)) if meta else 0


def job_bytes(new: NewJob) -> int:
    """The bytes of a new job."""
    size = OPERATION_BYTES + len(new.payload)
    if new.meta:
        size += _meta_bytes(new.meta)
    return size if new.extra is None else size + len(new.extra)


def settlement_bytes(end: Settlement) -> int:
    """The bytes of a settlement. (Error and traceback have their own limits, and count as characters.)"""
    size = OPERATION_BYTES
    for value in (end.result, end.error, end.traceback):
        if value is not None:
            size += len(value)
    return size


def note_bytes(note: Note) -> int:
    """The bytes of a note."""
    size = OPERATION_BYTES + _meta_bytes(note.meta)
    for value in (note.progress, note.checkpoint, note.output and note.output.data):
        if value:
            size += len(value)
    return size


def change_bytes(change: Change) -> int:
    """The bytes of a change."""
    patch = change.patch
    if patch is None:
        return OPERATION_BYTES
    size = OPERATION_BYTES + _meta_bytes(patch.meta)
    for value in (patch.payload, patch.result, patch.progress, patch.checkpoint, patch.extra):
        if value:
            size += len(value)
    return size


def jobs_bytes(jobs: Sequence[NewJob]) -> int:
    """The bytes of several new jobs."""
    return sum(map(job_bytes, jobs))


def changes_bytes(changes: Sequence[Change]) -> int:
    """The bytes of several changes."""
    return sum(map(change_bytes, changes))


def batch_bytes(batch: Batch) -> int:
    """The bytes of a whole batch."""
    written = sum(map(note_bytes, batch.notes)) + sum(map(settlement_bytes, batch.settles))
    return jobs_bytes(batch.inserts) + written + changes_bytes(batch.changes)
