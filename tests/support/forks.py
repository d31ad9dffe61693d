"""The fork server of a test process: programs that its tests start are forked from it."""

from __future__ import annotations

from functools import cache

from lab.fork_server import ForkServer

from .shared import until_the_end


@cache
def fork_server() -> ForkServer:
    """Started at its first use."""
    return until_the_end(ForkServer())
