"""The intervals and timeouts of a bucket store, in one value."""

from __future__ import annotations

import msgspec


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds, unless stated otherwise. Processes of one bucket may use different values."""

    verify_after: float = 60.0
    """After this long without a proof of the head, the snapshots are listed before each answer. 0: always."""
    clean_after: float = 3600.0
    """The age at which objects may be deleted, by the bucket's clock. At least three times `verify_after`."""
    snapshot_entries: int = 1000
    """Log entries between two snapshots, at least."""
    archive_after: float = 300.0
    """How long an ended job stays in the state, so that repeats are recognised: longer than four times `patience`."""
    archive_jobs: int = 1000
    """Ended jobs of one segment of `done/`, at most."""
    look_soonest: float = 0.05
    look_latest: float = 5.0
    """Between two polls of the log while there are listeners: after a change, and, increasing, at most."""
    patience: float = 20.0
    """How long a caller waits for the answer to its write."""
    watch_least: float = 1.0
    """The watched time of a holder without heartbeat from which it is written to the log when a process ends."""


FOLDER = Timings(look_soonest=0.005, look_latest=0.1)
"""A local disk answers at once and costs nothing."""
