"""`holdfast demo`: the first minute."""

from __future__ import annotations


def demo() -> None:
    """Run a few dozen jobs on a throw-away SQLite file, kill a worker in the middle of one, and watch it survive."""
    from ..demo.show import show

    show()
