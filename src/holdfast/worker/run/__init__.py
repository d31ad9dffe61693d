"""RUN: one claim in, one outcome out. Nothing here writes to the store but what a job says of itself."""

from .batch import Batch
from .run import Run
from .runner import Runner

__all__ = ["Batch", "Run", "Runner"]
