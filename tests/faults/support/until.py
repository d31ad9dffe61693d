"""Waiting for a condition, with a limit. A test here never sleeps to be sure."""

from lab.until import until

__all__ = ["until"]
