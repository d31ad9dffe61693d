"""Free space on the disk of a store, for `holdfast doctor`."""

from __future__ import annotations

import shutil
from pathlib import Path

from .protocol import Finding

LOW = 64 * 1024 * 1024
"""Bytes: with less, a burst of jobs, or a log that grows, may fill the disk."""
ADVICE = "free space on this disk, or move the store to a larger disk"


def free_space(folder: Path) -> Finding:
    """A finding about the bytes that this user may still write there."""
    free = shutil.disk_usage(folder).free
    return Finding(free >= LOW, f"{free / 1e6:.0f} MB are free on the disk of {folder}", ADVICE)
