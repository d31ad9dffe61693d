"""Rate-limited logging of store outages: the start, a summary once a minute, and the end."""

from __future__ import annotations

import logging
import threading

from ..core.clock import Clock
from ..core.errors import ConfigError, HoldfastError, MissingExtra, StoreRefused

logger = logging.getLogger("holdfast")
REFUSALS = (ConfigError, MissingExtra, StoreRefused)
"""Errors that a retry does not fix: an operator must change the store, its permissions or the URL."""
SUMMARY_EVERY = 60.0
"""Seconds between two log lines about one outage."""
CALM = 10.0
"""Seconds after the end of an outage within which a new failure counts as the same outage."""
STALE = 120.0
"""Seconds without an attempt after which an activity counts as stopped and no longer keeps the outage open."""
LONGEST_PAUSE = 30.0
"""Maximum seconds between two attempts after an error of `REFUSALS`."""


class Outages:
    """The failing activities of one process (`claiming jobs`, `heartbeat`, `maintenance`). Thread-safe.

    One outage lasts from the first failure of any activity until every activity succeeds again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[str, tuple[int, float]] = {}
        """By activity: consecutive failures, and the time of the last one."""
        self._kinds: set[str] = set()
        self._failures = 0
        self._began = self._logged_at = self._ended_at = -CALM
        self._announced = False

    def failed(self, activity: str, error: BaseException, pause: float = 0.0) -> float:
        """Count a failure; returns the seconds until the next attempt: `pause`, doubled each time the store refuses.

        Heartbeats and settlements ignore the result and retry soon, because leases expire.
        """
        with self._lock:
            now = self._clock.monotonic()
            if not self._failing and now - self._ended_at >= CALM:
                self._began, self._failures = now, 0
                self._kinds.clear()
            times = self._failing.get(activity, (0, 0.0))[0] + 1
            self._failing[activity] = times, now
            self._failures += 1
            refused = isinstance(error, REFUSALS)
            kind = "refused" if refused else "unavailable" if isinstance(error, HoldfastError) else type(error).__name__
            if kind not in self._kinds:
                self._kinds.add(kind)
                self._log("outage_began", f"{activity} failed, will retry: {type(error).__name__}: {error}", error)
            elif now - self._logged_at >= SUMMARY_EVERY:
                self._log(
                    "outage_continues",
                    f"{', '.join(sorted(self._failing))} still failing, {self._so_far()}, last error:"
                    f" {type(error).__name__}: {error}",
                    error,
                )
        return max(pause, min(LONGEST_PAUSE, pause * 2 ** min(times, 5))) if refused else pause

    def worked(self, activity: str) -> None:
        """Record that the activity succeeded."""
        if self._failing:
            self._worked(activity)

    def _worked(self, activity: str) -> None:
        with self._lock:
            now = self._clock.monotonic()
            failing = len(self._failing)
            self._failing = {
                name: (times, last)
                for name, (times, last) in self._failing.items()
                if name != activity and now - last < STALE
            }
            if failing and not self._failing:
                self._ended_at = now
                if self._announced:
                    self._log(
                        "outage_ended", f"store operations of this process succeed again after {self._so_far()}", None
                    )

    def _so_far(self) -> str:
        return f"{self._failures} failures in {self._clock.monotonic() - self._began:.0f} s"

    def _log(self, event: str, message: str, error: BaseException | None) -> None:
        now = self._clock.monotonic()
        self._logged_at, self._announced = now, error is not None
        fields = {"failures": self._failures, "seconds": round(now - self._began, 1)}
        if error is not None:
            fields |= {"activities": sorted(self._failing), "error": f"{type(error).__name__}: {error}"}
        logger.log(logging.WARNING if error else logging.INFO, message, extra={"event": event, "fields": fields})
