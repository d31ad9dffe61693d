"""Workers: claim, run, settle."""

from .worker import Worker

__all__ = ["Worker"]
