"""Outages in the log: one beginning, one summary a minute, one end."""

import logging

import pytest

from holdfast import ConfigError, OutcomeUnknown, StoreRefused, StoreUnavailable
from holdfast.observe.outages import CALM, LONGEST_PAUSE, STALE, SUMMARY_EVERY, Outages
from holdfast.testing import ManualClock

AWAY = StoreUnavailable("no route to host")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def outages(clock, caplog):
    caplog.set_level(logging.INFO, "holdfast")
    return Outages(clock)


def events(caplog):
    return [record.event for record in caplog.records if hasattr(record, "event")]


def test_an_outage_has_one_beginning_a_summary_a_minute_and_one_end(outages, clock, caplog):
    for _ in range(150):
        outages.failed("claim", AWAY)
        outages.failed("heartbeat", OutcomeUnknown("no answer"))
        clock.advance(1)
    outages.worked("claim")
    assert events(caplog) == ["outage_began", "outage_continues", "outage_continues"]
    outages.worked("heartbeat")
    outages.worked("heartbeat")
    assert events(caplog) == ["outage_began", "outage_continues", "outage_continues", "outage_ended"]
    assert "no route to host" in caplog.messages[0]
    assert caplog.records[-1].fields == {"failures": 300, "seconds": 150.0}


def test_a_failure_of_another_kind_is_logged_at_once(outages, caplog):
    for error in (
        AWAY,
        AWAY,
        StoreRefused("it is a standby"),
        ConfigError("wrong password"),
        KeyError("x"),
        KeyError("y"),
    ):
        outages.failed("claim", error)
    assert [m.rpartition(": ")[2] for m in caplog.messages] == ["no route to host", "it is a standby", "'x'"]


def test_work_that_fails_every_other_time_does_not_fill_the_log(outages, clock, caplog):
    for _ in range(100):
        outages.failed("settle", AWAY)
        outages.worked("settle")
        clock.advance(CALM / 100)
    assert events(caplog) == ["outage_began", "outage_ended"]
    clock.advance(CALM)
    outages.failed("settle", AWAY)
    assert events(caplog)[2:] == ["outage_began"]


def test_an_activity_that_stopped_does_not_keep_an_outage_open(outages, clock, caplog):
    outages.failed("settle", AWAY)
    clock.advance(STALE + SUMMARY_EVERY)
    outages.worked("claim")
    assert events(caplog) == ["outage_began", "outage_ended"]


def test_a_store_that_refuses_is_asked_less_and_less_often(outages):
    assert [outages.failed("claim", AWAY, 1.0) for _ in range(3)] == [1.0, 1.0, 1.0]
    outages.worked("claim")
    pauses = [outages.failed("claim", StoreRefused("it is a standby"), 1.0) for _ in range(6)]
    assert pauses == [2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE]
