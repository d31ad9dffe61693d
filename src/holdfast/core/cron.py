"""When a schedule is due: cron lines and intervals, time zones, and daylight saving changes.

Pure: no store, no clock. Times are microseconds since 1970, as in a job.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from .clock import MICROS, moment
from .errors import InvalidJob

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from cronsim import CronSim as _CronSim

LATE = 60 * MICROS
"""A run that is at most this late does not count as missed."""
MAX_RUNS = 1000
"""Upper bound of runs that are made up for at once, whatever the schedule allows."""
TWICE = timedelta(hours=3)
"""More than any clock change sets the clock back."""
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = "a cron line has five fields (minute, hour, day, month, weekday), or six with seconds first"
OVERLAPS = ("allow", "skip")


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The timing of a schedule: a cron line in a time zone, or an interval."""

    cron: str | None = None
    """Five fields, or six with seconds first; or an alias such as @daily."""
    tz: str = "UTC"
    every: float | None = None
    """Seconds, counted from the beginning of 1970, UTC."""
    catch_up: int = 1
    """Missed runs that are made up for, the latest first: 0 none, 1 one, n up to n."""
    jitter: float = 0.0
    """Maximum delay in seconds of each run; the same run always gets the same delay."""
    overlap: str = "allow"
    """`skip`: no run while the job of the previous run has not ended."""
    start: int | None = None
    """No run is due before this time."""
    end: int | None = None
    """No run is due after this time."""


def checked(rule: Rule) -> Rule:
    """The rule if it is valid and will ever be due; otherwise InvalidJob."""
    if (rule.cron is None) == (rule.every is None):
        raise InvalidJob("a schedule needs exactly one of a cron line and every=")
    if rule.every is not None and rule.every < 0.001:
        raise InvalidJob(f"every= must be at least 0.001 s, not {rule.every:g} s")
    if rule.overlap not in OVERLAPS:
        raise InvalidJob(f"overlap must be one of {', '.join(OVERLAPS)}, not {rule.overlap!r}")
    if type(rule.catch_up) is not int or not 0 <= rule.catch_up <= MAX_RUNS:
        raise InvalidJob(
            f"catch_up must be the maximum number of missed runs to enqueue late, from 0 to {MAX_RUNS},"
            f" not {rule.catch_up!r:.100}"
        )
    _zone(rule.tz)
    if rule.cron is not None and not _ever_due(Rule(cron=_text(rule.cron), tz=rule.tz)):
        raise InvalidJob(f"the cron line {rule.cron!r} matches no date: correct its day and month")
    if not _ever_due(Rule(rule.cron, rule.tz, rule.every, start=rule.start, end=rule.end)):
        raise InvalidJob("a schedule must be due at least once from start= to end=: correct these times")
    return rule


@lru_cache(maxsize=10_000)  # listing schedules checks every rule
def _ever_due(rule: Rule) -> bool:
    return next_after(rule, 0) is not None


def next_after(rule: Rule, after: int) -> int | None:
    """The first time that the rule is due after this time; None: never again."""
    if rule.start is not None:
        after = max(after, rule.start - 1)
    if rule.every is not None:
        step = round(rule.every * MICROS)
        due = (after // step + 1) * step
    else:
        due = next(_due(rule, after), None)
    return None if due is None or (rule.end is not None and due > rule.end) else due


def runs_due(rule: Rule, following: int, now: int) -> list[int]:
    """The runs to enqueue now, oldest first, where `following` was the next: those due now, and missed ones.

    A run that is only slightly late is always made; of the missed runs, the latest `catch_up` ones are.
    """
    first_fresh, following = now - LATE, max(following, rule.start or 0)
    fresh = _between(rule, max(following, first_fresh), now)[-MAX_RUNS:]
    missed = _latest(rule, following, first_fresh - 1, rule.catch_up - len(fresh))
    return missed + fresh


def _latest(rule: Rule, begin: int, end: int, count: int) -> list[int]:
    """The last `count` times that it is due from `begin` to `end`, oldest first."""
    found: list[int] = []
    end = end if rule.end is None else min(end, rule.end)  # else a window from long after its end widens over all
    span = max(MICROS, round((rule.every or 60) * MICROS))
    while count > 0 and begin <= end and len(found) < count:
        found = _between(rule, max(begin, end - span), end)[-count:]
        if end - span <= begin:
            break
        span *= 4
    return found


def _between(rule: Rule, begin: int, end: int) -> list[int]:
    """When it is due from `begin` to `end`, both included, and not after its own end."""
    end = end if rule.end is None else min(end, rule.end)
    if rule.every is not None:
        step = round(rule.every * MICROS)
        return list(range(-(-begin // step) * step, end + 1, step))
    return list(takewhile(lambda due: due <= end, _due(rule, begin - 1)))


def delayed(rule: Rule, name: str, due: int) -> int:
    """The earliest start of the run that is due then: its due time plus its share of the jitter."""
    if not rule.jitter:
        return due
    share = int.from_bytes(hashlib.blake2b(f"{name}\n{due}".encode(), digest_size=8).digest(), "big") / 2**64
    return due + round(share * rule.jitter * MICROS)


def in_words(rule: Rule) -> str:
    """A rule as English text."""
    if rule.every is not None:
        words = f"Every {_span(rule.every)}"
    else:
        words = _cron(_line(rule), datetime.fromtimestamp(0, UTC)).explain()
        words += "" if rule.tz == "UTC" else f" ({rule.tz})"
    limits = (("from", rule.start), ("until", rule.end))
    return words + "".join(f", {word} {moment(at):%Y-%m-%d %H:%M} UTC" for word, at in limits if at is not None)


def _span(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= size and seconds % size == 0:
            count = round(seconds / size)
            return unit if count == 1 else f"{count} {unit}s"
    return f"{seconds:g} seconds"


def _due(rule: Rule, after: int) -> Iterator[int]:
    """The times at which a cron line is due after this time, in order.

    The line is evaluated in local wall time without daylight saving; then each local time is converted with the time
    zone. A local time that occurs twice is due twice, one that is skipped is not due. A line of fixed times (no star in
    minute and hour) is due once for each: at its first occurrence, or at the time of the jump.
    """
    zone, line = _zone(rule.tz), _line(rule)
    begin = datetime.fromtimestamp(after // MICROS, UTC).astimezone(zone).replace(tzinfo=None)
    times = _cron(line, begin - TWICE)
    minute, hour = line.split()[-5:-3]  # a field of seconds may precede them
    fixed = not minute.startswith("*") and not hour.startswith("*")
    last, waiting = after, list[int]()
    for due in times:
        first, second = _moment(due, zone, 0), _moment(due, zone, 1)
        while waiting and waiting[0] <= min(first, second):  # nothing that follows can come before these
            if (at := heappop(waiting)) > last:
                last = at
                yield at
        if first > second:  # the clock jumps over it
            moments = [_jump(second, first, zone)] if fixed else []
        else:
            moments = [first] if fixed else [first, second]
        for at in moments:
            heappush(waiting, at)
    yield from (at for at in sorted({*waiting}) if at > last)


def _moment(due: datetime, zone: ZoneInfo, fold: int) -> int:
    return int(due.replace(tzinfo=zone, fold=fold).timestamp()) * MICROS


def _jump(begin: int, end: int, zone: ZoneInfo) -> int:
    """The time between these two at which the clock is set forward."""
    before = datetime.fromtimestamp(begin // MICROS, zone).utcoffset()
    seconds = range(begin // MICROS, end // MICROS + 1)
    return (
        seconds[
            bisect.bisect_left(seconds, True, key=lambda at: datetime.fromtimestamp(at, zone).utcoffset() != before)
        ]
        * MICROS
    )


def _line(rule: Rule) -> str:
    line = rule.cron or ""
    return _NAMED.get(line.strip().lower(), line)


def _cron(line: str, begin: datetime) -> _CronSim:
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(line, begin)
    except CronSimError as error:
        raise InvalidJob(f"invalid cron line {line!r}: {error}; {FIELDS}") from None


def _zone(name: Any) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        if isinstance(name, str):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise InvalidJob(f"unknown time zone {name!r:.100}: use an IANA name such as Europe/Oslo")


def _text(line: Any) -> str:
    if isinstance(line, str):
        return line
    raise InvalidJob(f"a cron line must be text such as '0 3 * * *', not {line!r:.100}")
