"""No claim, settle or sweep may scan the table or sort, with and without statistics."""

import re
import sqlite3

import pytest

from holdfast import Holdfast
from holdfast.core.clock import SystemClock
from holdfast.core.operations import Where
from holdfast.core.waiting import Waiting
from holdfast.store import checked_pages
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import observe, sql
from holdfast.store.sqlite.step import Step
from holdfast.testing.build import new_job

PLANS = {
    "insert": sql.INSERT_NOW[sql.MANY],
    "insert in limit keys": sql.INSERT_LIMITED[sql.MANY],
    "known keys": sql.KNOWS_KEY,
    "depth": sql.DEPTH,
    "next due": sql.NEXT_DUE,
    "promote": sql.PROMOTE,
    "first": sql.FIRST[0, False],
    "first of tasks": sql.FIRST[1, True],
    "read ready": sql.SELECT_READY[0, False],
    "read ready of tasks": sql.SELECT_READY[0, True],
    "read quarantined jobs": sql.SELECT_READY[1, False],
    "take": sql.TAKE[False],
    "taken alone": sql.TAKEN_ALONE,
    "take these": sql.TAKE_THESE,
    "ends": sql.ENDS,
    "read whole": sql.BY_SEQS,
    "limiters": sql.LIMITERS,
    "capacity freed": sql.CAPACITY_FREED,
    "opening": sql.OPENING,
    "next opening": sql.NEXT_OPENING,
    "running of limit keys": sql.RUNNING_OF_LIMIT_KEYS,
    "first deferred": sql.FIRST_DEFERRED,
    "any deferred": sql.ANY_DEFERRED,
    "put limiter": sql.PUT_LIMITER[sql.MANY],
    "defer": sql.DEFER,
    "release": sql.RELEASE,
    "release these": sql.RELEASE_THESE,
    "succeed": sql.SUCCEED[sql.MANY],
    "end": sql.END,
    "end and remove": sql.END_AND_REMOVE,
    "claimed": sql.CLAIMED,
    "get by number": sql.GET_BY_SEQ,
    "save": sql.SAVE,
    "claims of": sql.CLAIMS_OF,
    "renew": sql.RENEW_FOR_CLAIM,
    "lost of": sql.LOST_OF,
    "tidy jobs": sql.TIDY_JOBS,
    "tidy keys": sql.TIDY_KEYS,
    "tidy limiters": sql.TIDY_LIMITERS,
    "get": sql.GET,
    "ended": sql.ENDED,
    "any ready": sql.ANY_READY,
}
INDEX = {
    "known keys": "sqlite_autoindex_holdfast_key_1 (key=?)",
    "promote": "holdfast_due",
    "next due": "holdfast_due",
    "first": "holdfast_ready",
    "read ready": "holdfast_ready",
    "read ready of tasks": "holdfast_ready",
    "take": "holdfast_ready",
    "take quarantined job": "holdfast_ready",
    "take these": "SEARCH holdfast_job USING INTEGER PRIMARY KEY",
    "ends": "holdfast_ready",
    "capacity freed": "holdfast_deferred",
    "opening": "holdfast_opening",
    "read whole": "SEARCH holdfast_job USING INTEGER PRIMARY KEY",
    "running of limit keys": "COVERING INDEX holdfast_limit_key",
    "first deferred": "holdfast_deferred",
    "any deferred": "holdfast_deferred",
    "release": "holdfast_deferred",
    "release these": "SEARCH holdfast_job USING INTEGER PRIMARY KEY",
    "succeed": "SEARCH holdfast_job USING INTEGER PRIMARY KEY",
    "claims of": "holdfast_running",
    "tidy jobs": "holdfast_expiry",
    "tidy limiters": "holdfast_idle",
}


@pytest.fixture(params=["no statistics", "statistics of an empty queue", "statistics of a long queue"])
async def connection(request, path, store):
    connection = sqlite3.connect(path)
    if request.param == "statistics of an empty queue":
        connection.execute("ANALYZE")
    await store.write(Batch(inserts=[new_job(delay=number % 2) for number in range(500)]))
    if request.param == "statistics of a long queue":
        connection.execute("ANALYZE")
    connection.commit()
    yield connection
    connection.close()


def plan(connection, statement):
    values = [None] * 400
    for count in range(400):
        try:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values[:count]).fetchall()
        except sqlite3.ProgrammingError:
            continue
        return [row[3] for row in rows]
    raise AssertionError("too many parameters")


@pytest.mark.parametrize("name", PLANS)
def test_a_statement_uses_its_index(name, connection):
    steps = plan(connection, PLANS[name])
    assert not [step for step in steps if step.startswith("SCAN holdfast_")]
    assert not [step for step in steps if "TEMP B-TREE" in step]
    if name in INDEX:
        assert any(INDEX[name] in step for step in steps), steps


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (Where(states=("dead",)), "holdfast_unsuccessful"),
        (Where(states=("cancelled",)), "holdfast_unsuccessful"),
        (Where(waiting_for=Waiting("signal", "w")), "holdfast_waiting_for"),
        (
            Where(waiting_for=Waiting("signal", "w"), states=("blocked",), queue="default", task="work"),
            "holdfast_waiting_for",
        ),
    ],
)
def test_jobs_are_listed_from_their_index(where, index, connection):
    steps = plan(connection, finding(connection, where))
    assert any(f"INDEX {index}" in step for step in steps), steps
    assert not [step for step in steps if "TEMP B-TREE" in step]


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (Where(states=("scheduled",)), "holdfast_due"),
        (Where(states=("failed",), queue="default"), "holdfast_due"),
        (Where(states=("queued",), queue="default"), "holdfast_ready"),
        (Where(states=("dead",), queue="default"), "holdfast_unsuccessful"),
        (Where(states=("blocked",)), "holdfast_blocked"),
    ],
)
def test_only_the_jobs_of_a_page_are_read(where, index, connection):
    steps = plan(connection, finding(connection, where))
    assert steps[0] == "SEARCH holdfast_job USING INTEGER PRIMARY KEY (rowid=?)"
    assert any(f"INDEX {index}" in step for step in steps), steps


def finding(connection, where):
    """The statement by which a page of these jobs is read: the last one."""
    seen = []
    connection.set_trace_callback(seen.append)
    observe.find(Step(connection, SystemClock()), where, "7", 10)
    connection.set_trace_callback(None)
    return [text for text in seen if text.lstrip().startswith("SELECT")][-1]


async def test_a_page_that_no_index_gives_stops_and_says_how_many_jobs_it_has_checked(monkeypatch, store):
    monkeypatch.setattr(checked_pages, "FIRST_CHECKED", 100)
    monkeypatch.setattr(checked_pages, "MAX_CHECKED", 2000)
    await store.write(Batch(inserts=[new_job(queue="old", task="rare") for _ in range(3)]))
    await store.write(Batch(inserts=[new_job(queue="new") for _ in range(5000)]))
    for where in (Where(queue="old"), Where(task="rare"), Where(states=("queued",), task="rare")):
        found, steps = await store.find(where, None, 2), []
        while found.looked is not None:
            steps.append((len(found.records), found.looked))
            found = await store.find(where, found.cursor, 2)
        assert steps == [(0, 2000), (0, 2000)], where
        assert len(found.records) == 2, "a page whose jobs are found is not cut"
        assert len((await store.find(where, found.cursor, 2)).records) == 1
    async with Holdfast(store) as app:
        assert len((await app.jobs(queue="old", limit=3)).jobs) == 3, "a page of the API is full"


def test_every_statement_binds_its_values_with_plain_question_marks():
    # Python 3.12.0 to 3.12.3 warn whenever a statement with `?1` or `:name` runs with its values in a sequence.
    kept = [value for name, value in vars(sql).items() if not name.startswith("__")]
    statements = [text for value in kept for text in (value.values() if isinstance(value, dict) else [value])]
    statements = [text for text in statements if isinstance(text, str)]
    assert len(statements) > 80
    assert [text for text in statements if re.search(r"\?\d|[:@$][a-z]", text)] == []
