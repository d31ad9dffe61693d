"""What users hand in, checked before anything is stored: each refusal says what it must be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, cast

from .clock import micros
from .errors import InvalidJob
from .job import PRIORITY_MAX, PRIORITY_MIN
from .lifecycle import DELAY_LIMIT
from .retry import Backoff

NAME_LIMIT = 128
"""Characters of a queue's or task's name."""
KEY_LIMIT = 512
"""Characters of a key, an id or a tag: every store can index as many."""
TAGS_LIMIT = 100
"""Tags of one job."""
PAGE_LIMIT = 1000
"""Jobs of one page of a list: what a caller may ask for at once."""
CURSOR_LIMIT = 200
"""Characters of a page's cursor."""
WEEK = 7 * 86400
"""Seconds; the longest lease that may be asked for."""
KEYWORD = re.compile(r"(?<![\w?&.])([a-z_]+)=(?=[\s,;:.)]|$)")
"""A keyword argument as refusals name it: `every=`. Where it is an option or a field, it is said as one."""


def checked_name(name: Any, what: str) -> str:
    """A queue's or task's name: 1 to 128 printable characters."""
    if isinstance(name, str) and 0 < len(name) <= NAME_LIMIT and name.isprintable() and name == name.strip():
        return name
    raise InvalidJob(f"a {what} name is 1 to {NAME_LIMIT} printable characters, no blanks around it, not {name!r:.150}")


def checked_names(names: Any, what: str) -> tuple[str, ...]:
    """One name or several, each once."""
    given = _words(names)
    if not given:
        raise InvalidJob(f"name at least one {what}, not {names!r:.100}")
    return tuple(dict.fromkeys(checked_name(name, what) for name in given))


def checked_text(text: Any, what: str, limit: int = KEY_LIMIT) -> str:
    """A key, an id or a tag."""
    if not isinstance(text, str) or not text or len(text) > limit or not text.isprintable():
        raise InvalidJob(f"{what} must be 1 to {limit} printable characters, not {text!r:.100}")
    return text


def checked_filter(text: Any, what: str) -> str | None:
    """A part of a filter; what could be no name of anything is refused."""
    if text is None or (isinstance(text, str) and text.isprintable()):
        return text
    raise InvalidJob(f"{what} must be text, not {text!r:.100}")


def checked_priority(priority: Any) -> int:
    """Where a job stands among others; lower first."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise InvalidJob(f"priority is a whole number from {PRIORITY_MIN} to {PRIORITY_MAX}, not {priority!r:.100}")
    return priority


def checked_attempts(attempts: Any) -> int:
    """How often a job may start."""
    if isinstance(attempts, bool) or not isinstance(attempts, int) or not 0 <= attempts <= 1_000_000:
        raise InvalidJob(
            f"max_attempts is a whole number, the first start included (0: no limit), not {attempts!r:.100}"
        )
    return attempts


def checked_limit(limit: Any) -> int:
    """How many jobs at once."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_LIMIT:
        raise InvalidJob(f"limit is from 1 to {PAGE_LIMIT}, not {limit!r:.100}")
    return limit


def checked_cursor(cursor: Any) -> str | None:
    """Where a page begins; only the store can read it, but none writes such as are refused here."""
    if cursor is None or (isinstance(cursor, str) and cursor.isascii() and 0 < len(cursor) <= CURSOR_LIMIT):
        return cursor
    raise InvalidJob(f"this cursor is not one that a page gave: {cursor!r:.100}")


def checked_lease(lease: Any) -> float:
    """For how long a claim by hand holds."""
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not 0 < lease <= WEEK:
        raise InvalidJob(f"lease is more than 0 and at most 7 days, in seconds, not {lease!r:.100}")
    return lease


def checked_pid(pid: Any) -> int:
    """A process."""
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 2**31:
        raise InvalidJob(f"pid is the number of a process, not {pid!r:.100}")
    return pid


def checked_seconds(value: Any, what: str, *, positive: bool = False) -> float:
    """A time to wait; below 0 is 0."""
    try:
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError):
        seconds = float("nan")
    if isinstance(value, bool | str) or not -DELAY_LIMIT < seconds < DELAY_LIMIT or (positive and seconds <= 0):
        wanted = "more than 0 seconds" if positive else "a sensible number of seconds"
        raise InvalidJob(f"{what} must be {wanted}, or a timedelta, not {value!r:.100}")
    return max(0.0, seconds)


def checked_at(at: Any, what: str = "at") -> int:
    """An aware time as a store keeps it."""
    if not isinstance(at, datetime) or at.tzinfo is None or at.utcoffset() is None:
        raise InvalidJob(
            f"{what}= needs an aware datetime, such as datetime.now(UTC) + timedelta(hours=1), not {at!r:.100}"
        )
    return micros(at)


def checked_unique(unique: Any) -> tuple[str, float]:
    """For how long a job stands for others of its key, and the seconds of a window."""
    if unique in ("until_start", "until_end"):
        return unique, 0.0
    if isinstance(unique, str):
        raise InvalidJob(f"unique= is 'until_start', 'until_end' or a number of seconds, not {unique!r:.100}")
    return "window", checked_seconds(unique, "unique", positive=True)


def checked_expires(expires: Any) -> tuple[float | None, int | None]:
    """When it is too late to start: in so many seconds, or at a time."""
    if isinstance(expires, datetime):
        return None, checked_at(expires, "expires")
    return checked_seconds(expires, "expires", positive=True), None


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Words to find a job by."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidJob(f"tags is a list of words, not {tags!r:.100}")
    found = tuple(checked_text(tag, "a tag", NAME_LIMIT) for tag in cast("Iterable[Any]", tags))
    if len(found) > TAGS_LIMIT:
        raise InvalidJob(f"a job has at most {TAGS_LIMIT} tags, not {len(found)}")
    return found


def checked_backoff(retry: Any) -> Backoff:
    """The retry rule of one job."""
    if not isinstance(retry, Backoff):
        raise InvalidJob(f"retry= of a call is a Backoff, not {retry!r:.100}; app.task(retry=…) takes a function too")
    return retry


def error_text(error: Any) -> str:
    """An error as it is stored, from its text or the exception itself."""
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    if not isinstance(error, str):
        raise InvalidJob(f"the error must be text or an exception, not {error!r:.100}")
    return error


def _words(given: Any) -> tuple[Any, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        return (given,)
    return tuple(cast("Iterable[Any]", given))
