"""The rules of the job lifecycle, without a store."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Backoff, InvalidState, State
from holdfast.core.job import HISTORY_LIMIT, TERMINAL, WAITING, Attempt, Record
from holdfast.core.lifecycle import (
    ERROR_LIMIT,
    REFUSED_SINCE,
    TRACEBACK_LIMIT,
    Outcome,
    Rules,
    cancel,
    delete,
    edit,
    failures,
    history,
    overdue,
    retry,
    settle,
    time_left,
    too_late,
    update_meta,
    updated_at,
)
from holdfast.core.operations import Change, Patch
from holdfast.core.waiting import COMPATIBLE, Waiting

RULES = Rules(Backoff(base=10, factor=1, jitter=4), max_crashes=3, retention=60, key_retention=90_000)


def job(**fields):
    """A claimed job in its first attempt."""
    record = Record(
        seq=7,
        id="j",
        queue="default",
        task="work",
        state=State.RUNNING,
        priority=0,
        run_at=0,
        payload=b"{}",
        codec="json",
        max_attempts=5,
        timeout=None,
        key="k",
        created_at=0,
        attempt=1,
        fence=3,
        token=99,
        holder="node:1:a",
        started_at=5,
    )
    return msgspec.structs.replace(record, **fields)


def end(record, outcome, rules=RULES, **options):
    return settle(record, outcome, rules, **{"nonce": 1, "fraction": 0.5, **options})


def next_claim(record, ended):
    """The job as the next claim finds it."""
    return msgspec.structs.replace(
        record, attempt=ended.attempt + 1, quarantined=ended.quarantined, crashes=ended.crashes, fence=record.fence + 1
    )


OUTCOMES = {
    "succeeded": Outcome.succeeded(b"3"),
    "failed": Outcome.failed("Boom"),
    "failed, retry soon": Outcome.failed("Boom", delay=1.0),
    "dead": Outcome.dead("Boom"),
    "snoozed": Outcome.snoozed(8.0),
    "released": Outcome.released(),
    "suspended": Outcome.suspended("signal:go"),
    "suspended for a while": Outcome.suspended("signal:go", 8.0),
    "paused": Outcome.paused("pause:work"),
    "refused": Outcome.refused("UnknownTask: …"),
    "expired": Outcome.expired("expired"),
    "cancelled": Outcome.cancelled(),
    "lost": Outcome.lost(),
}

claims = st.builds(
    job,
    attempt=st.integers(1, 8),
    max_attempts=st.integers(0, 8),
    quarantined=st.booleans(),
    crashes=st.integers(-2, 2),
    cancel=st.booleans(),
    reset_count=st.integers(1, 3),
    error=st.none() | st.just("an earlier error"),
)
outcomes = st.sampled_from(list(OUTCOMES.values()))
terminal_states = st.sampled_from(sorted(TERMINAL))


# -- every outcome, attempts spent or not


@pytest.mark.parametrize(
    ("outcome", "attempts_left", "spent"),
    [
        ("succeeded", State.SUCCEEDED, State.SUCCEEDED),
        ("failed", State.FAILED, State.DEAD),
        ("failed, retry soon", State.FAILED, State.DEAD),
        ("dead", State.DEAD, State.DEAD),
        ("snoozed", State.SCHEDULED, State.SCHEDULED),
        ("released", State.QUEUED, State.QUEUED),
        ("suspended", State.BLOCKED, State.BLOCKED),
        ("suspended for a while", State.SCHEDULED, State.SCHEDULED),
        ("paused", State.BLOCKED, State.BLOCKED),
        ("refused", State.SCHEDULED, State.SCHEDULED),
        ("expired", State.CANCELLED, State.CANCELLED),
        ("cancelled", State.CANCELLED, State.CANCELLED),
        ("lost", State.QUEUED, State.DEAD),
    ],
)
@pytest.mark.parametrize("quarantined", [False, True], ids=["sound", "quarantined"])
def test_a_claim_ends_in(outcome, attempts_left, spent, quarantined):
    assert end(job(attempt=1, max_attempts=2, quarantined=quarantined), OUTCOMES[outcome]).state == attempts_left
    assert end(job(attempt=2, max_attempts=2, quarantined=quarantined), OUTCOMES[outcome]).state == spent


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_max_attempts_zero_is_no_limit(outcome):
    assert end(job(attempt=1_000_000, max_attempts=0), OUTCOMES[outcome]).state in WAITING


def test_a_lost_claim_whose_cancellation_was_asked_for_ends_cancelled():
    for attempt in (1, 5):
        ended = end(job(attempt=attempt, cancel=True), Outcome.lost())
        assert (ended.state, ended.outcome, ended.quarantined) == (State.CANCELLED, "cancelled", False)
        assert ended.error == "cancelled while running; its worker stopped without a result"


def test_work_that_finished_before_its_cancellation_stays_succeeded():
    ended = end(job(cancel=True), Outcome.succeeded(b"3"))
    assert (ended.state, ended.result) == (State.SUCCEEDED, b"3")


def test_a_dead_end_stays_dead_though_its_cancellation_was_asked_for():
    assert end(job(cancel=True), Outcome.dead("Boom")).state == State.DEAD


@given(claims, outcomes, st.integers(0, 5) | st.none())
def test_every_end_carries_the_claim_it_ends(record, outcome, heartbeat):
    ended = end(record, outcome, nonce=41, expected_heartbeat=heartbeat)
    assert (ended.id, ended.seq, ended.fence, ended.token) == (record.id, record.seq, record.fence, record.token)
    assert (ended.nonce, ended.expected_heartbeat) == (41, heartbeat)


@given(claims, outcomes)
def test_the_attempt_never_falls_below_zero_and_never_rises_at_the_end(record, outcome):
    assert 0 <= end(record, outcome).attempt <= record.attempt


GIVEN_BACK = ("released", "snoozed", "suspended", "paused")


@given(claims, st.sampled_from([OUTCOMES[kind] for kind in GIVEN_BACK]))
def test_what_is_given_back_is_not_charged(record, outcome):
    ended = end(record, outcome)
    assert ended.attempt == record.attempt - 1
    assert (ended.state in WAITING, ended.error, ended.waiting_for) == (True, record.error, outcome.waiting_for)


@given(claims)
def test_a_refused_job_is_not_charged_and_waits_for_another_worker(record):
    ended = end(record, OUTCOMES["refused"])
    assert (ended.attempt, ended.state, ended.delay) == (record.attempt - 1, State.SCHEDULED, 1.0)
    assert (ended.waiting_for, ended.error) == (COMPATIBLE, "UnknownTask: …")
    assert (ended.quarantined, ended.crashes) == (record.quarantined, record.crashes)


@pytest.mark.parametrize(
    "note", [None, 7, {}, {"at": "then", "fence": 1}, {"at": None, "fence": None}, {"fence": 1}, []], ids=repr
)
def test_an_invalid_note_of_refusals_is_ignored(note):
    record = job(meta={REFUSED_SINCE: note}, started_at=9_000_000_000)
    assert end(record, OUTCOMES["refused"]).delay == 1.0


@given(claims, outcomes)
def test_everything_else_is_charged(record, outcome):
    if outcome.kind not in (*GIVEN_BACK, "refused", "expired"):
        assert end(record, outcome).attempt == record.attempt


@given(claims, outcomes)
def test_only_success_has_a_result_and_only_failure_a_new_error(record, outcome):
    ended = end(record, outcome)
    assert (ended.result is not None) == (ended.state == State.SUCCEEDED)
    if ended.state == State.SUCCEEDED:
        assert ended.error is None
    elif outcome.kind in GIVEN_BACK:
        assert ended.error == record.error
    else:
        assert ended.error


# -- whole lifecycles


@given(
    st.integers(1, 6),
    st.lists(st.sampled_from(["failed", "lost", "released", "snoozed"]), min_size=1, max_size=40),
)
def test_at_most_max_attempts_starts_are_charged(max_attempts, ends):
    record, charged = job(max_attempts=max_attempts), 0
    rules = msgspec.structs.replace(RULES, max_crashes=1000)
    for kind in ends:
        charged += kind in ("failed", "lost")
        ended = end(record, OUTCOMES[kind], rules)
        assert (ended.state == State.DEAD) == (charged == max_attempts)
        if ended.state == State.DEAD:
            return
        record = next_claim(record, ended)
        assert record.attempt == charged + 1


@given(
    st.integers(1, 4),
    st.lists(st.sampled_from(["failed", "lost", "lost", "lost", "released", "snoozed"]), min_size=1, max_size=30),
)
def test_only_crashes_in_a_row_while_alone_make_a_job_poisonous(limit, ends):
    record, crashes = job(max_attempts=0), 0
    rules = msgspec.structs.replace(RULES, max_crashes=limit)
    for kind in ends:
        if kind == "lost":
            crashes += 1
        elif kind != "released":  # any report shows that the process runs; a release is no run at all
            crashes = 0
        # Any neighbour may cause the first crash, another quarantined job the next two; then the job runs alone.
        alone_crashes = crashes - 3
        ended = end(record, OUTCOMES[kind], rules)
        assert (ended.state == State.DEAD) == (alone_crashes >= limit)
        if ended.state == State.DEAD:
            assert "quarantined" in ended.error
            assert f"{limit} times in a row" in ended.error
            return
        assert (ended.quarantined, ended.crashes) == (crashes > 0, alone_crashes if crashes else 0)
        record = next_claim(record, ended)


def test_poison_ends_a_job_that_has_attempts_left_and_says_so():
    ended = end(job(attempt=4, max_attempts=1000, quarantined=True, crashes=2), Outcome.lost())
    assert (ended.state, ended.outcome) == (State.DEAD, "dead")
    assert ended.error == (
        "quarantined: its process crashed 3 times in a row while no other job ran in it;"
        " find the cause before you retry the job"
    )


def test_a_neighbour_that_died_with_its_process_is_quarantined_but_not_counted():
    ended = end(job(), Outcome.lost())
    assert (ended.quarantined, ended.crashes, ended.state) == (True, -2, State.QUEUED)


@pytest.mark.parametrize(("crashes", "then"), [(-2, -1), (-1, 0), (0, 1), (1, 2)])
def test_a_quarantined_that_dies_in_company_comes_closer_to_being_alone(crashes, then):
    assert end(job(quarantined=True, crashes=crashes), Outcome.lost()).crashes == then


@pytest.mark.parametrize(("crashes", "then"), [(-2, 1), (-1, 1), (0, 1), (1, 2)])
def test_a_quarantined_whose_own_process_died_is_counted_at_once(crashes, then):
    assert end(job(quarantined=True, crashes=crashes), Outcome.lost(alone=True)).crashes == then


@pytest.mark.parametrize(("attempt", "quarantined", "crashes"), [(1, False, 0), (3, True, -2)])
def test_no_job_spends_its_last_attempt_in_the_company_of_quarantined(attempt, quarantined, crashes):
    ended = end(
        job(attempt=attempt, max_attempts=attempt + 1, quarantined=quarantined, crashes=crashes), Outcome.lost()
    )
    assert (ended.state, ended.quarantined, ended.crashes) == (State.QUEUED, True, 0)


def test_a_job_whose_only_attempt_was_lost_runs_alone_if_it_is_retried():
    ended = end(job(attempt=1, max_attempts=1), Outcome.lost())
    assert (ended.state, ended.quarantined, ended.crashes) == (State.DEAD, True, 0)


def test_a_lost_claim_names_the_worker_that_lost_it():
    assert end(job(), Outcome.lost()).error == "lost: worker node:1:a stopped without reporting a result"
    assert end(job(attempt=5), Outcome.lost()).error.endswith("and all 5 attempts are used")


def test_a_lost_claim_keeps_the_reason_that_was_given_for_it():
    assert end(job(), Outcome.lost("lost: killed by signal 9")).error == "lost: killed by signal 9"


# -- when it runs again


def test_a_failure_waits_for_the_backoff_with_its_jitter():
    assert end(job(), Outcome.failed("Boom"), fraction=0.0).delay == 10
    assert end(job(), Outcome.failed("Boom"), fraction=0.5).delay == 12


def test_the_backoff_grows_with_the_attempt():
    rules = Rules(Backoff(base=1, factor=2, jitter=0), max_crashes=3, retention=60, key_retention=60)
    assert [end(job(attempt=n), Outcome.failed("Boom"), rules).delay for n in (1, 2, 3)] == [2, 4, 8]


def test_a_delay_that_the_run_named_comes_before_the_backoff():
    assert end(job(), Outcome.failed("Boom", delay=0.0)).delay == 0.0


def test_the_jobs_own_backoff_comes_before_the_rules():
    assert end(job(retry=Backoff(base=3, factor=1, jitter=0)), Outcome.failed("Boom")).delay == 3


def test_a_release_keeps_the_jobs_place():
    assert end(job(), Outcome.released()).delay is None


def test_a_release_keeps_the_suspicion():
    ended = end(job(quarantined=True, crashes=2), Outcome.released())
    assert (ended.quarantined, ended.crashes) == (True, 2)


def test_a_pause_keeps_everything_and_says_what_it_waits_for():
    record = job(quarantined=True, crashes=2, error="Boom", attempt=2)
    ended = end(record, Outcome.paused(Waiting("pause", "work")))
    assert (ended.state, ended.attempt, ended.waiting_for, ended.delay) == (
        State.BLOCKED,
        1,
        Waiting("pause", "work"),
        None,
    )
    assert (ended.quarantined, ended.crashes, ended.error) == (True, 2, "Boom")


@pytest.mark.parametrize(
    ("fields", "too_late_then"),
    [
        ({}, False),
        ({"extra": b'{"expires_at":9}'}, False),
        ({"extra": b'{"expires_at":5}'}, True),
        ({"extra": b'{"expires_in":0.000005}'}, True),
        ({"extra": b'{"expires_in":0.000005}', "created_at": 1}, False),
        ({"extra": b'{"expires_at":5}', "checkpoint": b"1"}, False),
        ({"extra": b'{"expires_at":5}', "history": (Attempt(0, 1, 0, "w", 1, 2, "suspended"),)}, False),
        ({"extra": b'{"expires_at":5}', "history": (Attempt(0, 1, 0, "w", 1, 2, "failed"),)}, True),
    ],
)
def test_it_is_too_late_from_its_expiry_on_unless_it_has_begun(fields, too_late_then):
    assert (too_late(job(**fields)) is not None) == too_late_then


def test_an_expired_job_ends_cancelled_and_was_never_started():
    ended = end(job(), too_late(job(extra=b'{"expires_at":5}')))
    assert (ended.state, ended.outcome, ended.attempt, ended.keep) == (State.CANCELLED, "expired", 0, 60)
    assert ended.error == "expired: the job did not start before 1970-01-01 00:00:00.000+00:00"


def test_a_retry_of_an_expired_job_removes_its_expiry():
    record = job(state=State.CANCELLED, extra=b'{"expires_at":5,"flow":"f"}')
    assert retry(record).patch.extra == b'{"flow":"f"}'


@pytest.mark.parametrize(
    ("extra", "delay", "then"),
    [
        (None, 30.0, State.FAILED),
        (b'{"deadline_in":20}', 14.0, State.FAILED),
        (b'{"deadline_in":20}', 15.0, State.DEAD),
        (b'{"deadline_at":20000000}', 14.0, State.FAILED),
        (b'{"deadline_at":20000000}', 15.5, State.DEAD),
    ],
)
def test_a_job_is_retried_only_before_its_deadline(extra, delay, then):
    ended = end(job(extra=extra, started_at=5_000_000), Outcome.failed("Boom", delay=delay))
    assert ended.state == then
    assert ("not retried" in ended.error) == (then == State.DEAD)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, None),
        ({"extra": b'{"flow":"f"}'}, None),
        ({"extra": b'{"deadline_in":20}'}, 15.0),
        ({"extra": b'{"deadline_in":20}', "created_at": 2_000_000}, 17.0),
        ({"extra": b'{"deadline_at":5000000}'}, 0.0),
    ],
)
def test_the_time_to_the_deadline_is_counted_from_the_claim(fields, left):
    record = job(started_at=5_000_000, **fields)
    assert time_left(record) == left
    assert (overdue(record) is not None) == (left == 0.0)


def test_a_snooze_waits_as_long_as_it_said():
    ended = end(job(), Outcome.snoozed(8.0))
    assert (ended.delay, ended.outcome) == (8.0, "snoozed")


@pytest.mark.parametrize("said", [float("nan"), float("inf"), float("-inf"), -5.0, 1e300])
@pytest.mark.parametrize("outcome", [lambda said: Outcome.failed("Boom", delay=said), Outcome.snoozed])
def test_a_delay_beyond_reason_becomes_one_that_a_store_can_keep(outcome, said):
    # A store adds it to its clock, in microseconds of 64 bits, and a person reads the sum as a date.
    assert 0 <= end(job(), outcome(said)).delay <= 1e11


# -- how long it stays


def test_the_dead_stay_until_purged_and_the_rest_for_the_retention():
    assert end(job(), Outcome.dead("Boom")).keep is None
    assert end(job(), Outcome.succeeded(None)).keep == 60
    assert end(job(), Outcome.cancelled()).keep == 60


@given(claims, outcomes)
def test_a_waiting_end_that_becomes_a_cancellation_is_kept_like_one(record, outcome):
    ended = end(record, outcome)
    if ended.state in WAITING:
        assert ended.cancelled_keep == RULES.retention


@given(claims, outcomes)
def test_every_end_says_how_long_the_key_is_remembered(record, outcome):
    ended = end(record, outcome)
    assert (ended.key, ended.key_keep) == ("k", RULES.key_retention)


# -- texts


def test_a_long_error_is_cut_and_marked():
    error = Outcome.failed("x" * 10_000).error
    assert len(error) == 4096
    assert error.endswith("…")


def test_a_long_traceback_keeps_its_end_where_the_error_is():
    trace = Outcome.dead("Boom", "y" * 100_000 + "ValueError: here").traceback
    assert len(trace) == 32_768
    assert trace.startswith("…")
    assert trace.endswith("ValueError: here")


def test_a_text_of_just_the_limit_is_kept_whole():
    error, trace = "x" * ERROR_LIMIT, "y" * TRACEBACK_LIMIT
    for outcome in (Outcome.failed(error, trace), Outcome.dead(error, trace)):
        assert (outcome.error, outcome.traceback) == (error, trace)
    assert Outcome.expired(error).error == error
    assert Outcome.failed(error + "x", "a" + trace).error == error[:-1] + "…"
    assert Outcome.failed(error, "a" + trace).traceback == "…" + trace[:-1]


# -- an operator's wishes


@pytest.mark.parametrize("state", sorted(WAITING))
def test_cancelling_a_waiting_job_ends_it_at_once(state):
    change = cancel(job(state=state, attempt=0), RULES)
    assert (change.expected_state, change.expected_fence, change.id) == (state, 3, "j")
    assert (change.patch.state, change.patch.keep, change.patch.key_keep) == (State.CANCELLED, 60, 90_000)
    assert change.patch.error == "cancelled before it ran"


def test_cancelling_between_two_attempts_says_so():
    assert cancel(job(state=State.FAILED, attempt=2), RULES).patch.error == "cancelled while it waited"


def test_cancelling_a_suspended_job_does_not_say_that_it_never_ran():
    """Its attempt is not charged while it waits for a signal; its steps are stored."""
    suspended = job(state=State.BLOCKED, attempt=0, checkpoint=b"{}")
    assert cancel(suspended, RULES).patch.error == "cancelled while it waited"


def test_cancelling_a_running_job_is_a_request():
    patch = cancel(job(), RULES).patch
    assert patch.cancel is True
    assert patch.state is msgspec.UNSET


@given(claims, terminal_states)
def test_an_ended_job_cannot_be_cancelled_or_annotated(record, state):
    record = msgspec.structs.replace(record, state=state, cancel=False)
    assert cancel(record, RULES) is None
    with pytest.raises(InvalidState, match=f"is {state}: its meta can only be updated before it ends"):
        update_meta(record, {"a": 1})


@given(claims, terminal_states)
def test_retrying_an_ended_job_raises_its_reset_count(record, state):
    record = msgspec.structs.replace(record, state=state, finished_at=9)
    patch = retry(record).patch
    assert (patch.state, patch.attempt, patch.reset_count, patch.delay) == (
        State.QUEUED,
        0,
        record.reset_count + 1,
        0.0,
    )
    assert (patch.quarantined, patch.crashes, patch.cancel) == (False, 0, False)
    assert (patch.result, patch.error, patch.traceback, patch.progress) == (None, None, None, None)
    assert patch.history[-1].outcome == state
    assert patch.history[-1].reset_count == record.reset_count


@pytest.mark.parametrize("state", sorted(WAITING - {State.BLOCKED}))
def test_retrying_a_waiting_job_makes_it_due_and_changes_nothing_else(state):
    patch = retry(job(state=state, attempt=2)).patch
    assert (patch.state, patch.delay) == (State.QUEUED, 0.0)
    assert patch.attempt is patch.reset_count is patch.history is msgspec.UNSET


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.RUNNING, "cancel it or wait until it ends, then retry it"),
        (State.BLOCKED, "it waits for other jobs"),
    ],
)
def test_retrying_is_refused_with_the_reason(state, reason):
    with pytest.raises(InvalidState, match=reason):
        retry(job(state=state))


def test_a_running_job_is_not_deleted():
    with pytest.raises(InvalidState, match="cancel it or wait until it ends, then delete it"):
        delete(job())


@pytest.mark.parametrize("state", sorted(set(State) - {State.RUNNING}))
def test_any_other_job_is_deleted(state):
    assert delete(job(state=state)) == Change("j", state, 3, None)


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_a_live_job_takes_more_meta(state):
    assert update_meta(job(state=state), {"a": 1}) == Change("j", state, 3, Patch(meta={"a": 1}))


@pytest.mark.parametrize("state", [State.QUEUED, State.DEAD])
def test_a_retry_is_of_the_job_as_it_was_seen(state):
    change = retry(job(state=state))
    assert (change.id, change.expected_state, change.expected_fence) == ("j", state, 3)


def test_a_job_whose_cancellation_was_asked_for_is_not_asked_again():
    assert cancel(job(cancel=True), RULES) is None


def test_a_job_of_a_flow_is_kept_until_its_flow_has_ended_and_its_end_is_reported():
    for outcome in (Outcome.succeeded(b"3"), Outcome.cancelled()):
        ended = end(job(extra=b'{"flow":"f"}'), outcome)
        assert (ended.keep, ended.cancelled_keep, ended.record_end) == (None, None, True)
    patch = cancel(job(state=State.QUEUED, extra=b'{"flow":"f"}'), RULES).patch
    assert (patch.keep, patch.record_end) == (None, True)
    assert end(job(), Outcome.succeeded(b"3")).record_end is False


# -- history


def test_the_last_attempt_of_an_ended_job_is_in_its_history():
    lost = Attempt(1, 2, 0, "node:0:b", 1, 2, "lost", "lost")
    record = job(state=State.DEAD, attempt=2, finished_at=9, error="Boom", history=(lost,))
    assert history(record) == (lost, Attempt(2, 3, 0, "node:1:a", 5, 9, "dead", "Boom"))


def test_a_job_that_never_ran_has_no_history():
    assert history(job(state=State.CANCELLED, started_at=None, finished_at=9, holder=None)) == ()


def test_a_running_attempt_is_not_yet_history():
    assert history(job()) == ()
    assert history(job(state=State.FAILED, finished_at=9)) == (), "it is in the history that the store keeps"


def test_failures_count_since_the_last_reset_and_include_a_dead_end_that_ran():
    failed = Attempt(2, 2, 0, None, 1, 2, "failed")
    assert failures(job()) == 0
    assert failures(job(history=(failed,))) == 2
    assert failures(job(history=(failed,), reset_count=1)) == 0
    assert failures(job(history=(failed,), state=State.DEAD)) == 3
    assert failures(job(state=State.DEAD, started_at=None)) == 0


def test_a_job_was_updated_when_it_last_moved_or_was_changed():
    failed = Attempt(1, 2, 0, None, 1, 4, "failed")
    assert updated_at(job(created_at=1, started_at=None)) == 1
    assert updated_at(job(created_at=1, started_at=None, history=(failed,))) == 4
    assert updated_at(job(created_at=1, started_at=5, history=(failed,))) == 5
    assert updated_at(job(started_at=5, finished_at=9)) == 9
    assert updated_at(job(started_at=5, changed_at=7)) == 7
    assert updated_at(job(started_at=5, changed_at=3)) == 5


def test_a_reset_keeps_no_more_history_than_the_limit():
    line = Attempt(1, 2, 1, None, 1, 2, "failed")
    record = job(state=State.DEAD, finished_at=9, history=(line,) * HISTORY_LIMIT)
    kept = retry(record).patch.history
    assert len(kept) == HISTORY_LIMIT
    assert kept[-1].outcome == "dead"


@pytest.mark.parametrize("outcome", [Outcome.failed, Outcome.dead])
def test_an_error_that_is_no_proper_text_is_made_one(outcome):
    # A file name that is not UTF-8 has half a surrogate pair; not every store keeps a NUL.
    ended = outcome("no file 'caf\udce9\0'", "Traceback: caf\udce9\0")
    assert ended.error == "no file 'caf?\ufffd'"
    assert ended.traceback == "Traceback: caf?\ufffd"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.succeeded(b"3"), None),
        (Outcome.failed("KeyError: 'a'", error_type="KeyError"), "KeyError"),
        (Outcome.failed("a manual claim failed"), "failed"),
    ],
)
def test_the_kind_of_an_error_is_the_class_of_the_exception_or_the_outcome(outcome, kind):
    assert outcome.error_kind == kind


# -- edit


def waiting(state=State.QUEUED, **fields):
    return job(state=state, fence=3, checkpoint=b"step", **fields)


def test_other_arguments_remove_the_finished_steps_and_other_edits_keep_them():
    assert edit(waiting(), Patch(payload=b"[1]"), None) == Change(
        "j", State.QUEUED, 3, Patch(payload=b"[1]", checkpoint=None), expected_task="work"
    )
    assert edit(waiting(), Patch(priority=4, queue="q"), None) == Change(
        "j", State.QUEUED, 3, Patch(priority=4, queue="q"), expected_task="work"
    )


def test_a_refused_job_with_other_arguments_is_due_and_refused_for_the_first_time_again():
    meta = {REFUSED_SINCE: {"at": 1, "fence": 3}}
    refused = waiting(State.SCHEDULED, waiting_for=COMPATIBLE, meta=meta)
    due = {"state": State.QUEUED, "delay": 0.0}
    with_arguments = Patch(payload=b"[1]", checkpoint=None, meta={REFUSED_SINCE: None})
    assert edit(refused, Patch(payload=b"[1]"), None).patch == msgspec.structs.replace(with_arguments, **due)
    later = {"state": State.SCHEDULED, "delay": 9.0}
    assert edit(refused, Patch(payload=b"[1]"), 9.0).patch == msgspec.structs.replace(with_arguments, **later)
    assert edit(refused, Patch(priority=1), None).patch == Patch(priority=1)


@pytest.mark.parametrize(
    ("state", "reason", "delay", "then"),
    [
        (State.QUEUED, None, 5.0, State.SCHEDULED),
        (State.SCHEDULED, None, 0.0, State.QUEUED),
        (State.FAILED, None, 5.0, State.FAILED),
        (State.FAILED, None, 0.0, State.QUEUED),
        (State.BLOCKED, Waiting("limit", "api"), 5.0, State.SCHEDULED),
        (State.BLOCKED, None, 5.0, State.SCHEDULED),
    ],
)
def test_another_time_of_a_waiting_job(state, reason, delay, then):
    patch = edit(waiting(state, waiting_for=reason), Patch(), delay).patch
    assert patch == Patch(state=then, delay=delay)


def test_a_job_that_waits_for_something_else_gets_no_other_time_but_other_arguments():
    blocked = waiting(State.BLOCKED, waiting_for=Waiting("signal", "paid"))
    with pytest.raises(InvalidState, match="it waits for"):
        edit(blocked, Patch(payload=b"[1]"), 5.0)
    assert edit(blocked, Patch(payload=b"[1]"), None).patch == Patch(payload=b"[1]", checkpoint=None)


@pytest.mark.parametrize("state", sorted(set(State) - WAITING))
def test_only_a_waiting_job_is_edited(state):
    why = "it has started" if state == State.RUNNING else "only a waiting job"
    with pytest.raises(InvalidState, match=why):
        edit(job(state=state), Patch(priority=1), None)
