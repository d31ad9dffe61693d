"""How long to wait before the next attempt."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from .errors import ConfigError


class Backoff(msgspec.Struct, frozen=True, gc=False):
    """`min(cap, base * factor ** attempt) + random(0, jitter)` seconds; `base=1, factor=b` is plain `b ** attempt`."""

    base: float = 5.0
    factor: float = 2.0
    jitter: float = 2.0
    cap: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("base", "factor", "jitter", "cap"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} of a Backoff must be a finite number of at least 0, not {value!r}")

    def delay(self, attempt: int, fraction: float) -> float:
        """Seconds to wait after the attempt-th charged start; `fraction` in [0, 1) places it within the jitter."""
        try:
            grown = self.base * self.factor**attempt
        except (OverflowError, ZeroDivisionError):  # the attempt's number may be anything in a damaged job
            grown = self.cap if self.base else 0.0
        return min(self.cap, grown) + self.jitter * fraction


RetryRule = Backoff | Callable[[BaseException, int], "float | None"]
"""A Backoff, or a function of (exception, attempt) that returns seconds to wait, or None for no further attempt."""
