"""How many connections a server process has room for: each takes a file descriptor, and the store needs some too."""

from __future__ import annotations

import logging
import resource

from . import limits

logger = logging.getLogger("holdfast.http")
SAY_EVERY = 10.0
"""Seconds between two lines of the log that say the same."""


class Room:
    """Counts connections against what there is room for, and says so in the log where there are too many."""

    def __init__(self) -> None:
        self._files = files()
        self._said_at = -SAY_EVERY

    @property
    def most(self) -> int:
        """Connections that there may be."""
        return max(1, min(limits.CONNECTIONS, self._files - limits.FILES))

    def over(self, connections: int, now: float) -> int:
        """By how many there are too many."""
        over = connections - self.most
        if over > 0 and now - self._said_at >= SAY_EVERY:
            self._said_at = now
            logger.warning("connections are refused: there are %d already, of at most %d", connections - 1, self.most)
        return over


def files() -> int:
    """How many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.CONNECTIONS + limits.FILES if soft == resource.RLIM_INFINITY else soft


def make_room() -> None:
    """Let this process open as many files as it wants for its connections, or as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.CONNECTIONS + limits.FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
