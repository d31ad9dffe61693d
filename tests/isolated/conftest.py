"""Every test here sits at a terminal of its own."""

from support.terminal import terminal

__all__ = ["terminal"]
