"""The intervals and timeouts of a bucket store, in one value."""

from __future__ import annotations

import msgspec


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds, unless stated otherwise. Processes of one bucket may use different values."""

    verify_after: float = 60.0
    """After this long without a proof, nothing is believed before the snapshots were listed. 0: verify always."""
    clean_after: float = 3600.0
    """The age at which objects may be removed, by the bucket's clock. At least three times `verify_after`."""
    snapshot_entries: int = 1000
    """Entries of log between two snapshots, at the least."""
    archive_after: float = 300.0
    """For which an ended job stays in the state: whatever is sent again, four times with `patience`, is recognised."""
    archive_jobs: int = 1000
    """Ended jobs of one segment of `done/`, at the most."""
    look_soonest: float = 0.05
    look_latest: float = 5.0
    """Between looks at the log while somebody waits for a listener: soon after something happened, ever later after."""
    patience: float = 20.0
    """For which a caller waits for a write whose outcome is not known."""
    watch_least: float = 1.0
    """Of watching a silent holder that are worth an entry in the log, when a process ends."""


FOLDER = Pace(look_soonest=0.005, look_latest=0.1)
"""A local disk answers at once and costs nothing."""
