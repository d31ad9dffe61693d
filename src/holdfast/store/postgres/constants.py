"""The Python constants that SQL uses: the values of placeholders such as `{PROMOTE_LIMIT}` in `migrations/`.

A released migration never changes. If one of these numbers changes, so does the text of version 1, and it no longer
matches tests/postgres/constants.txt. Then a new migration has to replace the functions that use it.
"""

from __future__ import annotations

import re

from ...core.clock import MICROS
from ...core.histogram import BOUNDS, BUCKETS, LETTERS
from ...core.job import HISTORY_LIMIT, PRIORITY_MAX, PRIORITY_MIN, TERMINAL
from ...core.limiter import KEPT, LAG, LOOK_AGAIN, STEP
from ...core.settings import Settings
from ...core.waiting import LIMIT_PREFIX
from ..protocol import COHORT, DEFER_LIMIT, LARGE, MINUTE_STATS_KEPT, PROMOTE_LIMIT, TRANSITIONS_KEPT, WATCH

CONSTANTS = {
    "PROMOTE_LIMIT": PROMOTE_LIMIT,
    "DEFER_LIMIT": DEFER_LIMIT,
    "COHORT": COHORT,
    "TRANSITIONS_KEPT": TRANSITIONS_KEPT,
    "MINUTE_STATS_KEPT": int(MINUTE_STATS_KEPT * MICROS),
    "WATCH": int(WATCH * MICROS),
    "HISTORY_LIMIT": HISTORY_LIMIT,
    "PRIORITY_MIN": PRIORITY_MIN,
    "PRIORITY_MAX": PRIORITY_MAX,
    "MAX_ATTEMPTS": Settings().max_attempts,
    "STEP": STEP,
    "LAG": LAG,
    "LIMIT_KEYS_KEPT": KEPT,
    "LOOK_AGAIN": LOOK_AGAIN,
    "MICROS": MICROS,
    "MINUTE": 60 * MICROS,
    "BUCKETS": BUCKETS,
    "BUCKET_BOUNDS": ",".join(map(str, BOUNDS)),
    "FIRST_LETTER": ord(LETTERS[0]),
    "LARGE": LARGE,
    "GENERATION_LOCK": 1000,
    "STRAGGLERS": 1000,
    "NOTICES": 1000,
    "LIMIT_PREFIX": LIMIT_PREFIX,
    "FINAL_STATES": ", ".join(f"'{state}'" for state in sorted(TERMINAL)),
}
"""Times in microseconds. Of this store alone are the number of the lock of generation 0, the jobs that one step moves
from an old generation, and the notices that one claim applies."""


def filled(text: str) -> str:
    """SQL with its placeholders replaced. An unknown placeholder is a KeyError."""
    return re.sub(r"\{([A-Z_]+)\}", lambda found: str(CONSTANTS[found[1]]), text)
