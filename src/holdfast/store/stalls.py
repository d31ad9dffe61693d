"""Rates that wait for a time which a wrong clock has set. Pure.

Where each process goes by its own wall clock, one that is ahead leaves a `tat` that others would wait for. No clock is
asked whether that is so: a limit key in which nothing has started for `burst` intervals may start a job by its rate,
whatever time is written in its limiter. A process finds that out by watching.
"""

from __future__ import annotations

from collections.abc import Iterable


class Stalls:
    """What one process has seen of limit keys that hold jobs for their rate."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        """The `tat` of each, and since when it is known to be that."""

    def over(self, held: Iterable[tuple[str, int, int]], at: int) -> list[tuple[str, int]]:
        """The limit keys, with their `tat`, that have started nothing for `burst` intervals.

        `held`: name, `tat` and `burst` intervals of every limit key that waits. `at`: by a clock that nobody sets. All
        are in microseconds.
        """
        before, self._seen = self._seen, {}
        found: list[tuple[str, int]] = []
        for name, tat, span in held:
            seen, since = before.get(name, (tat, at))
            self._seen[name] = (tat, since if seen == tat else at)
            if at - self._seen[name][1] >= span:
                found.append((name, tat))
        return found
