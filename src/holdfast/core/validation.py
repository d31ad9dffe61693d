"""Checks user input before anything is stored: each error states what the value must be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, cast

from .clock import MICROS, micros
from .errors import InvalidJob
from .job import PRIORITY_MAX, PRIORITY_MIN
from .lifecycle import DELAY_LIMIT
from .retry import Backoff

NAME_LIMIT = 128
"""Characters of a queue or task name."""
RESERVED = "holdfast."
MAX_RATE, MIN_RATE = 1e6, 1e-6
"""Jobs per second."""
"""Prefix of internal tasks, such as webhook deliveries: clients cannot submit them, nor move jobs to them."""
KEY_LIMIT = 512
"""Characters of a key, an id or a tag: every store can index this many."""
TAGS_LIMIT = 100
"""Tags of one job."""
PAGE_LIMIT = 1000
"""Maximum number of jobs on one page of a list."""
CURSOR_LIMIT = 200
"""Characters of a page's cursor."""
EPOCH_LIMIT = 253_402_300_800
"""Seconds since 1970 at the end of the year 9999, after which no date can be shown. Milliseconds are above it."""
WEEK = 7 * 86400
"""The longest lease that may be requested, in seconds."""
KEYWORD = re.compile(r"(?<![\w?&.])([a-z_]+)=(?=[\s,;:.)]|$)")
"""A keyword argument as errors name it: `every=`. The command line and HTTP replace it by an option or a field."""


def checked_name(name: Any, what: str) -> str:
    """A queue's or task's name: 1 to 128 printable characters."""
    if isinstance(name, str) and 0 < len(name) <= NAME_LIMIT and name.isprintable() and name == name.strip():
        return name
    raise InvalidJob(
        f"a {what} name must be 1 to {NAME_LIMIT} printable characters without spaces at its ends, not {name!r:.150}"
    )


def checked_new_task(name: Any) -> str:
    """The task that a move gives to jobs: any but an internal one."""
    if checked_name(name, "task").startswith(RESERVED):
        raise InvalidJob(f"task {name!r} is internal to Holdfast: jobs cannot be moved to it")
    return name


def checked_names(names: Any, what: str) -> tuple[str, ...]:
    """One name or several, each once."""
    given = _words(names)
    if not given:
        raise InvalidJob(f"give at least one {what} name, not {names!r:.100}")
    return tuple(dict.fromkeys(checked_name(name, what) for name in given))


def checked_text(text: Any, what: str, limit: int = KEY_LIMIT) -> str:
    """A key, an id or a tag."""
    if not isinstance(text, str) or not text or len(text) > limit or not text.isprintable():
        raise InvalidJob(f"{what} must be 1 to {limit} printable characters, not {text!r:.100}")
    return text


def checked_filter(text: Any, what: str) -> str | None:
    """One value of a filter; InvalidJob if it cannot be a name."""
    if text is None or (isinstance(text, str) and text.isprintable()):
        return text
    raise InvalidJob(f"{what} must be printable text, not {text!r:.100}")


def checked_priority(priority: Any) -> int:
    """A job's priority; lower first."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise InvalidJob(
            f"priority must be a whole number from {PRIORITY_MIN} to {PRIORITY_MAX}, not {priority!r:.100}"
        )
    return priority


def checked_rate(rate: Any) -> float:
    """Jobs per second, from a number or a text such as `100/s`, `30/m` or `500/h`."""
    number, _, unit = rate.partition("/") if isinstance(rate, str) else (rate, "", "s")
    try:
        per_second = float(number) / {"s": 1, "m": 60, "h": 3600}[unit.strip()]
    except (TypeError, ValueError, OverflowError, KeyError):
        per_second = float("nan")
    if isinstance(rate, bool) or not MIN_RATE <= per_second <= MAX_RATE:
        raise InvalidJob(
            f"rate must be a number of jobs per second, or text such as '100/s' or '30/m', not {rate!r:.100}"
        )
    return per_second


def checked_attempts(attempts: Any) -> int:
    if isinstance(attempts, bool) or not isinstance(attempts, int) or not 0 <= attempts <= 1_000_000:
        raise InvalidJob(f"max_attempts must be a whole number from 0 (no limit) to 1000000, not {attempts!r:.100}")
    return attempts


def checked_limit(limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_LIMIT:
        raise InvalidJob(f"limit must be a whole number from 1 to {PAGE_LIMIT}, not {limit!r:.100}")
    return limit


def checked_cursor(cursor: Any) -> str | None:
    """The cursor of a page; only the store decodes it, but no store makes those that are rejected here."""
    if cursor is None or (isinstance(cursor, str) and cursor.isascii() and 0 < len(cursor) <= CURSOR_LIMIT):
        return cursor
    raise InvalidJob(f"invalid cursor {cursor!r:.100}: use the cursor of an earlier page")


def checked_lease(lease: Any) -> float:
    """The lease of a manual claim, in seconds."""
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not 0 < lease <= WEEK:
        raise InvalidJob(f"lease must be a number of seconds above 0 and at most {WEEK} (7 days), not {lease!r:.100}")
    return lease


def checked_pid(pid: Any) -> int:
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 2**31:
        raise InvalidJob(f"pid must be a process id, a whole number above 0, not {pid!r:.100}")
    return pid


def checked_seconds(value: Any, what: str, *, positive: bool = False) -> float:
    """A waiting time in seconds; negative values become 0."""
    try:
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = float("nan")
    if isinstance(value, bool | str) or not -DELAY_LIMIT < seconds < DELAY_LIMIT or (positive and seconds <= 0):
        wanted = "a number of seconds above 0" if positive else "a number of seconds below 300 years"
        raise InvalidJob(f"{what} must be {wanted}, or a timedelta, not {value!r:.100}")
    return max(0.0, seconds)


def checked_at(at: Any, what: str = "at") -> int:
    """An aware datetime, or seconds since 1970, as a stored time."""
    if isinstance(at, datetime) and at.tzinfo is not None and at.utcoffset() is not None:
        return micros(at)
    if isinstance(at, int | float) and not isinstance(at, bool) and 0 <= at < EPOCH_LIMIT:
        return round(at * MICROS)
    raise InvalidJob(
        f"{what}= needs an aware datetime, such as datetime.now(UTC) + timedelta(hours=1), or seconds since 1970, not"
        f" {at!r:.100}"
    )


def checked_unique(unique: Any) -> tuple[str, float]:
    """For how long the key belongs to the job, and the seconds of a window."""
    if unique in ("until_start", "until_end"):
        return unique, 0.0
    if isinstance(unique, str | bool):
        raise InvalidJob(f"unique= must be 'until_start', 'until_end' or a number of seconds, not {unique!r:.100}")
    return "window", checked_seconds(unique, "unique", positive=True)


def checked_expires(expires: Any, what: str = "expires") -> tuple[float | None, int | None]:
    """The expiry, or deadline: in seconds, or as a stored time."""
    if isinstance(expires, datetime):
        return None, checked_at(expires, what)
    return checked_seconds(expires, what, positive=True), None


def checked_tags(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidJob(f"tags must be a list of strings, not {tags!r:.100}")
    found = tuple(checked_text(tag, "a tag", NAME_LIMIT) for tag in cast("Iterable[Any]", tags))
    if len(found) > TAGS_LIMIT:
        raise InvalidJob(f"a job can have at most {TAGS_LIMIT} tags, not {len(found)}")
    return found


def checked_backoff(retry: Any) -> Backoff:
    if not isinstance(retry, Backoff):
        raise InvalidJob(
            f"retry= of a call must be a Backoff, not {retry!r:.100}; a function is allowed in @app.task(retry=…)"
        )
    return retry


def error_text(error: Any) -> str:
    """The stored text of an error, from text or an exception."""
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    if not isinstance(error, str):
        raise InvalidJob(f"the error must be text or an exception, not {error!r:.100}")
    return error


def type_name(error: BaseException) -> str:
    """The class of an exception, with its module if it is not a built-in one."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _words(given: Any) -> tuple[Any, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        return (given,)
    return tuple(cast("Iterable[Any]", given))
