"""Processes that a dead worker leaves to its supervisor: the supervisor adopts them, ends them and collects them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE = 2.0
"""Seconds in which orphaned nannies end what they stand above, before they are ended themselves."""
LOOK_EVERY = 0.02
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """From now on, orphans among this process's descendants become its children. Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Adopted:
    """The children of this process that it did not start."""

    def reap(self, own: set[int]) -> set[int]:
        """Collect the dead among them; those that live."""
        living: set[int] = set()
        for pid in _children() - own:
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    living.add(pid)
        return living

    async def end(self, own: Callable[[], set[int]]) -> None:
        """Wait until they are gone, then kill those that are not."""
        for _ in range(int(PATIENCE / LOOK_EVERY)):
            if not self.reap(own()):
                return
            await asyncio.sleep(LOOK_EVERY)
        for _ in range(int(PATIENCE / LOOK_EVERY)):
            living = self.reap(own())
            if not living:
                return
            for pid in living:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(LOOK_EVERY)


def _children() -> set[int]:
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found
