"""Detection of rate limits that wait for a time written by a process whose clock was ahead. Pure.

Where each process uses its own wall clock, a clock that is ahead writes a `tat` too far in the future. No clock is
compared: a limit key in which no job has started for `burst` intervals may start one by its rate, whatever `tat` its
limiter has. A process finds that out by watching.
"""

from __future__ import annotations

from collections.abc import Iterable


class Stalls:
    """What one process has observed of limit keys that wait for their rate."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        """The `tat` of each limit key, and since when it is known to have that value."""

    def over(self, waiting: Iterable[tuple[str, int, int]], at: int) -> list[tuple[str, int]]:
        """The limit keys, with their `tat`, in which no job has started for `burst` intervals.

        `waiting`: name, `tat` and `burst` intervals of every limit key that waits. `at`: a monotonic time. All times
        are in microseconds.
        """
        before, self._seen = self._seen, {}
        found: list[tuple[str, int]] = []
        for name, tat, span in waiting:
            seen, since = before.get(name, (tat, at))
            self._seen[name] = (tat, since if seen == tat else at)
            if at - self._seen[name][1] >= span:
                found.append((name, tat))
        return found
