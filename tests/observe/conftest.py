"""A terminal for tests with real processes."""

from support.terminal import terminal

__all__ = ["terminal"]
