"""A disk without room, for this process alone."""

from __future__ import annotations

import resource


class Limited:
    """The files of this process may not grow while it is set."""

    def __init__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def kill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self.before[1]))

    def start(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
