"""Every test here has its own terminal."""

from support.terminal import terminal

__all__ = ["terminal"]
