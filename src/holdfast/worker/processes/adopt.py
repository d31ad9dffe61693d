"""Orphaned processes of a crashed worker: its supervisor adopts them, waits for their end and reaps them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .process_table import mark_of

ORPHANS_GRACE = 2.0
"""Seconds in which orphaned process guards end their job's processes, before a sweep kills them."""
ORPHANS_EVERY = 0.02
"""Seconds between two checks whether they have ended."""
_PR_SET_CHILD_SUBREAPER = 36
"""An option of prctl(2), as in `process_guard.py`, which is a program and cannot be imported."""


def become_subreaper() -> None:
    """From now on, orphans among this process's descendants become its children. Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Adopted:
    """The children of this process that it did not start."""

    def reap(self, own: set[int]) -> set[int]:
        """Reap those that have ended; returns those that live."""
        living: set[int] = set()
        for pid in _children() - own:
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    living.add(pid)
        return living

    async def gone(self, own: Callable[[], set[int]], worker: int) -> None:
        """Wait, at most ORPHANS_GRACE, until the processes of a crashed worker's jobs have ended.

        Others are left alone: a program that was started before us by the same process, a container's stray shell.
        """
        for _ in range(int(ORPHANS_GRACE / ORPHANS_EVERY)):
            if not any((mark_of(pid) or "").startswith(f"{worker}:") for pid in self.reap(own())):
                return
            await asyncio.sleep(ORPHANS_EVERY)


def _children() -> set[int]:
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found
