"""RUN: one claim in, one outcome out. Nothing here writes to the store but what a job says of itself."""

from .run import Run
from .runner import Runner

__all__ = ["Run", "Runner"]
