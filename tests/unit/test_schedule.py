"""When schedules are due: checked against an oracle that walks the clock minute by minute."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import cron
from holdfast.core.cron import MAX_RUNS, Rule, checked, delayed, in_words, next_after, runs_due
from holdfast.core.errors import InvalidJob
from support.sizes import size

MICROS = 1_000_000
MINUTE = 60 * MICROS
ZONES = (
    "Europe/Oslo",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Tehran",
    "Africa/Casablanca",
)


def at(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * MICROS


def between(rule: Rule, begin: int, end: int) -> list[int]:
    found: list[int] = []
    due = next_after(rule, begin - 1)
    while due is not None and due <= end:
        found.append(due)
        due = next_after(rule, due)
    return found


def field(text: str, low: int, high: int) -> set[int]:
    if text == "*":
        return set(range(low, high + 1))
    if text.startswith("*/"):
        return set(range(low, high + 1, int(text[2:])))
    return {int(part) for part in text.split(",")}


@functools.cache
def on_the_wall(moment: int, zone: str) -> datetime:
    """What the clock shows there; an hour that comes twice is shown twice."""
    return datetime.fromtimestamp(moment // MICROS, ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def oracle(line: str, zone: str, begin: int, end: int) -> list[int]:
    """Every minute of the span, by the calendar on the wall there.

    A line of fixed times (no star in minute and hour) runs once per day and time: in the hour that comes twice the
    first time, and where the clock jumps over it as soon as it has. Any other runs whenever the clock shows its time.
    """
    minutes, hours, days, months, weekdays = line.split()
    at_minutes, at_hours = field(minutes, 0, 59), field(hours, 0, 23)
    on_days, on_months = field(days, 1, 31), field(months, 1, 12)
    on_weekdays = {number % 7 for number in field(weekdays, 0, 7)}
    fixed = not minutes.startswith("*") and not hours.startswith("*")

    def shows(local: datetime) -> bool:
        if local.minute not in at_minutes or local.hour not in at_hours or local.month not in on_months:
            return False
        day = local.day in on_days
        weekday = local.isoweekday() % 7 in on_weekdays
        return day and weekday if "*" in (days[0], weekdays[0]) else day or weekday

    found: list[int] = []
    seen: set[datetime] = set()
    moment = begin // MINUTE * MINUTE - 3 * 3600 * MICROS
    before = on_the_wall(moment - MINUTE, zone)
    while moment <= end:
        local = on_the_wall(moment, zone)
        if fixed:
            jumped = before + timedelta(minutes=1)
            while jumped < local:  # the clock was put forward over these minutes
                if shows(jumped):
                    found.append(moment)
                    seen.add(jumped)
                jumped += timedelta(minutes=1)
            if shows(local) and local not in seen:
                found.append(moment)
                seen.add(local)
        elif shows(local):
            found.append(moment)
        before = max(before, local)
        if not fixed:
            before = local
        moment += MINUTE
    return [due for due in sorted(set(found)) if begin <= due <= end]


LINES = (
    "30 2 * * *",
    "0 3 * * *",
    "*/30 * * * *",
    "15 * * * *",
    "0 */2 * * *",
    "0 0 1 * *",
    "5,35 1,2,3 * * 0",
    "59 23 31 12 *",
)


DAY = 86400 * MICROS


@functools.cache
def changes(zone: str, year: int) -> list[int]:
    """The moments of a year, to the hour, at which the clock is put forward or back."""
    info = ZoneInfo(zone)
    hours = [at(f"{year}-01-01") + number * 3600 * MICROS for number in range(366 * 24)]
    offsets = [datetime.fromtimestamp(hour // MICROS, info).utcoffset() for hour in hours]
    return [hour for hour, one, other in zip(hours[1:], offsets, offsets[1:], strict=False) if one != other]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("line", LINES)
def test_both_changes_of_the_clock_are_as_on_the_wall(line: str, zone: str) -> None:
    rule = checked(Rule(cron=line, tz=zone))
    for year in (2015, 2020, 2024, 2026):
        for change in changes(zone, year) or [at(f"{year}-06-15")]:
            begin, end = change - DAY, change + DAY
            assert between(rule, begin, end) == oracle(line, zone, begin, end)


def test_a_daily_run_in_the_hour_that_comes_twice_is_made_once() -> None:
    rule = Rule(cron="30 2 * * *", tz="Europe/Berlin")
    begin = at("2026-10-25", "Europe/Berlin")
    assert len(between(rule, begin, begin + 25 * 3600 * MICROS - 1)) == 1


def test_a_daily_run_in_the_hour_that_is_left_out_is_made_after_it() -> None:
    rule = Rule(cron="30 2 * * *", tz="Europe/Berlin")
    begin = at("2026-03-29", "Europe/Berlin")
    assert between(rule, begin, begin + 23 * 3600 * MICROS - 1) == [at("2026-03-29T03:00", "Europe/Berlin")]


def test_seconds_in_front_change_nothing_of_the_days_on_which_the_clock_is_changed() -> None:
    for line in ("30 2 * * *", "*/30 * * * *", "30 * * * *", "15 2,3 * * *"):
        for day in ("2026-03-29", "2026-10-25"):
            begin = at(day, "Europe/Oslo")
            five, six = Rule(cron=line, tz="Europe/Oslo"), Rule(cron=f"0 {line}", tz="Europe/Oslo")
            assert between(six, begin, begin + DAY) == between(five, begin, begin + DAY)
    begin = at("2026-10-25", "Europe/Oslo")
    every_second_of_a_minute = Rule(cron="* 30 2 * * *", tz="Europe/Oslo")
    assert len(between(every_second_of_a_minute, begin, begin + DAY)) == 60


def test_an_interval_is_counted_from_1970() -> None:
    rule = Rule(every=90)
    assert next_after(rule, 0) == 90 * MICROS
    assert next_after(rule, 90 * MICROS - 1) == 90 * MICROS
    assert next_after(Rule(every=3600), at("2026-01-01T00:00:30")) == at("2026-01-01T01:00:00")
    assert runs_due(rule, 91 * MICROS, 180 * MICROS) == [180 * MICROS]


@pytest.mark.parametrize("rule", [Rule(every=60), Rule(cron="* * * * *")])
def test_missed_runs_are_made_up_for_as_far_as_it_says(rule: Rule) -> None:
    now, following = at("2026-05-01T12:00:30"), at("2026-05-01T10:00:00")
    on_time = [at("2026-05-01T12:00:00")]
    skip = Rule(every=rule.every, cron=rule.cron, catch_up=0)
    assert runs_due(skip, following, now) == on_time
    assert runs_due(rule, following, now) == on_time, "one run stands for all that were missed"
    three = Rule(every=rule.every, cron=rule.cron, catch_up=3)
    assert runs_due(three, following, now) == [at("2026-05-01T11:58:00"), at("2026-05-01T11:59:00"), *on_time]
    plenty = Rule(every=rule.every, cron=rule.cron, catch_up=1000)
    assert len(runs_due(plenty, following, now)) == 121


def test_a_run_that_was_missed_altogether_is_skipped_or_made_once() -> None:
    now, following = at("2026-05-01T12:00:00"), at("2026-05-01T03:00:00")
    assert runs_due(Rule(cron="0 3 * * *", catch_up=0), following, now) == []
    assert runs_due(Rule(cron="0 3 * * *"), following, now) == [following]


def test_runs_that_are_hardly_late_are_all_made() -> None:
    now = at("2026-05-01T12:00:05")
    following = now - 4 * MICROS
    assert runs_due(Rule(every=1), following, now) == [now - number * MICROS for number in (4, 3, 2, 1, 0)]


def test_nothing_is_due_before_its_time() -> None:
    now = at("2026-05-01T12:00:00")
    assert runs_due(Rule(cron="0 13 * * *"), at("2026-05-01T13:00:00"), now) == []


def test_years_without_a_worker_do_not_make_a_flood() -> None:
    rule = Rule(every=0.001, catch_up=MAX_RUNS)
    assert len(runs_due(rule, at("2020-01-01"), at("2026-01-01"))) <= 2 * MAX_RUNS


def test_long_after_its_end_only_its_last_runs_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    end, between, counted = at("2026-01-01"), cron._between, []

    def counts(*args: Any) -> list[int]:
        found = between(*args)
        counted.append(len(found))
        return found

    monkeypatch.setattr(cron, "_between", counts)
    assert runs_due(Rule(every=1, end=end, catch_up=2), end - 30 * DAY, end + 10 * DAY) == [end - MICROS, end]
    assert max(counted) < 100


@given(
    every=st.integers(1, 100_000),
    catch_up=st.integers(0, 20),
    gap=st.integers(0, 10_000_000),
)
@pytest.mark.sized
@settings(max_examples=size(300))
def test_what_is_made_was_due_and_comes_in_order(every: int, catch_up: int, gap: int) -> None:
    rule = Rule(every=every, catch_up=catch_up)
    now = at("2026-05-01")
    following = next_after(rule, now - gap * MICROS)
    assert following is not None
    made = runs_due(rule, following, now)
    assert made == sorted(set(made))
    assert all(following <= due <= now and due % (every * MICROS) == 0 for due in made)


def test_jitter_is_the_same_for_the_same_run_and_differs_between_runs() -> None:
    rule = Rule(every=60, jitter=30)
    delays = {delayed(rule, "report", due) - due for due in range(0, 100 * MINUTE, MINUTE)}
    assert all(0 <= delay < 30 * MICROS for delay in delays)
    assert len(delays) > 90
    assert delayed(rule, "report", 0) == delayed(rule, "report", 0)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(), "exactly one of a cron line and every="),
        (Rule(cron="* * * * *", every=5), "exactly one of a cron line and every="),
        (Rule(cron="61 * * * *"), "invalid cron line .*: Bad minute"),
        (Rule(cron="nonsense"), "invalid cron line .*: Wrong number of fields"),
        (Rule(cron="0 0 31 2 *"), "invalid cron line .*: Bad day-of-month"),
        (Rule(cron="* * * * *", tz="Mars/Olympus"), "unknown time zone 'Mars/Olympus'"),
        (Rule(cron="* * * * *", tz="../../etc/passwd"), "unknown time zone"),
        (Rule(every=0), "at least 0.001 s"),
        (Rule(every=1, overlap="maybe"), "overlap must be one of allow, skip"),
        (Rule(every=1, catch_up=-1), "catch_up must be the maximum number"),
        (Rule(every=1, catch_up=1.5), "catch_up must be the maximum number .* not 1.5"),  # type: ignore[arg-type]
        (Rule(every=1, catch_up=True), "catch_up must be the maximum number .* not True"),
        (Rule(every=1, catch_up="all"), "catch_up must be the maximum number .* not 'all'"),  # type: ignore[arg-type]
        (Rule(every=1, tz="Mars/Olympus"), "unknown time zone 'Mars/Olympus'"),
        (Rule(every=1, tz=None), "unknown time zone None"),  # type: ignore[arg-type]
        (Rule(cron=5), "a cron line must be text such as .* not 5"),  # type: ignore[arg-type]
    ],
)
def test_what_can_never_work_is_refused_with_a_reason(rule: Rule, words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        checked(rule)


@pytest.mark.parametrize("rule", [{"every": 3600.0}, {"cron": "0 * * * *"}])
def test_no_run_is_due_before_the_start_or_after_the_end(rule) -> None:
    start, end = at("2030-01-01 10:00"), at("2030-01-01 12:00")
    limited = checked(Rule(**rule, start=start, end=end, catch_up=9))
    every_hour = [start, at("2030-01-01 11:00"), end]
    assert between(limited, 0, at("2031-01-01 00:00")) == every_hour
    assert runs_due(limited, at("2030-01-01 05:00"), at("2030-01-02 00:00")) == every_hour
    assert next_after(limited, end) is None
    assert between(Rule(**rule, end=end), start, at("2031-01-01 00:00")) == every_hour


def test_a_rule_in_words() -> None:
    assert in_words(Rule(every=60, end=at("2030-01-01 12:00"))) == "Every minute, until 2030-01-01 12:00 UTC"
    assert in_words(Rule(every=300)) == "Every 5 minutes"
    assert in_words(Rule(every=86400)) == "Every day"
    assert "02:30" in in_words(Rule(cron="30 2 * * *", tz="Europe/Oslo"))
    assert in_words(Rule(cron="30 2 * * *", tz="Europe/Oslo")).endswith("(Europe/Oslo)")
    assert in_words(Rule(cron="@daily")) == in_words(Rule(cron="0 0 * * *"))
