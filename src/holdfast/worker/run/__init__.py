"""Running one claim to its outcome. Only the notes of a job (progress, output) are written to the store here."""

from .batch import Batch
from .run import Run
from .runner import Runner

__all__ = ["Batch", "Run", "Runner"]
