"""What becomes of a flow's jobs, and of the flow: by values, whatever the errors of jobs say to people."""

import msgspec
import pytest

from holdfast.core import internal
from holdfast.core.flow_rules import END_STATE, decide, end_of_flow, failed, unneeded
from holdfast.core.internal import FollowUp, Internal, added, read, write
from holdfast.core.job import Record, State
from holdfast.core.lifecycle import retry
from holdfast.flows.release import fill_results

WORDS = [
    None,
    "",
    "not run: job f.0 (work) is dead",
    "not run: not needed, because job f.0 (work) succeeded",
    "cancelled before it ran",
]


def job(number, state=State.BLOCKED, error=None, **about):
    extra = internal.write(Internal(flow="f", **about))
    return Record(
        number, f"f.{number}", "default", "work", state, 0, 0, b"{}", "json", 5, None, None, 0, extra=extra, error=error
    )


def decided(child, *parents):
    """The child as the change that was decided leaves it."""
    found = decide(child, internal.read(child.extra), {parent.id: parent for parent in parents}, 0)
    patch = found.patch
    return msgspec.structs.replace(child, state=patch.state, error=patch.error, extra=patch.extra)


def not_run(record):
    return internal.read(record.extra).not_run


def test_a_job_after_a_dead_one_says_why_it_was_not_run_and_keeps_all_else():
    child = job(1, after=((0, "fail"),), holes=True, expires_in=5.0)
    ended = decided(child, job(0, State.DEAD))
    assert internal.read(ended.extra) == Internal(
        flow="f", after=((0, "fail"),), holes=True, expires_in=5.0, not_run="failed_parent"
    )
    assert (ended.state, ended.error) == (State.CANCELLED, "not run: job f.0 (work) is dead")
    assert (failed(ended), unneeded(ended)) == (True, False)


def test_a_compensation_for_a_success_is_not_needed_and_neither_is_what_comes_after_it():
    spared = decided(job(1, after=((0, "compensate"),)), job(0, State.SUCCEEDED))
    behind = decided(job(2, after=((1, "fail"),)), spared)
    assert [not_run(one) for one in (spared, behind)] == ["not_needed", "not_needed"]
    assert [(failed(one), unneeded(one)) for one in (spared, behind)] == [(False, True)] * 2


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("why", [None, "failed_parent", "not_needed"])
def test_no_rule_reads_the_error_of_a_job(words, why):
    ended = job(1, State.CANCELLED, words, not_run=why)
    assert (failed(ended), unneeded(ended)) == (why == "failed_parent", why == "not_needed")
    after = decided(job(2, after=((1, "fail"),)), ended)
    assert not_run(after) == ("not_needed" if why == "not_needed" else "failed_parent")


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.BLOCKED, State.QUEUED])
def test_only_a_cancelled_job_was_not_run(state):
    record = job(1, state, not_run="failed_parent")
    assert not failed(record)
    assert not unneeded(msgspec.structs.replace(record, extra=internal.write(Internal(flow="f", not_run="not_needed"))))


@pytest.mark.parametrize("why", ["failed_parent", "not_needed"])
def test_a_job_that_is_retried_is_not_one_that_was_not_run_any_more(why):
    again = retry(job(1, State.CANCELLED, not_run=why, after=((0, "fail"),), expires_in=1.0)).patch
    assert internal.read(again.extra) == Internal(flow="f", after=((0, "fail"),))


def test_a_reason_that_nobody_gives_is_damage():
    with pytest.raises(ValueError, match="not_run"):
        internal.decode(b'{"flow": "f", "not_run": "bored"}')


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (b'{"flow": "f", "upto": -1}', "upto must not be negative"),
        (b'{"flow": "f", "allow_unfinished": -1}', "allow_unfinished must not be negative"),
        (b'{"flow": ""}', "flow must not be empty"),
    ],
)
def test_a_value_out_of_range_is_named(extra, said):
    with pytest.raises(ValueError, match=said):
        internal.decode(extra)


@pytest.mark.parametrize(
    ("failures", "cancelled", "abandoned", "ended", "state"),
    [
        (False, False, False, "succeeded", State.SUCCEEDED),
        (True, False, False, "failed", State.DEAD),
        (True, True, False, "failed", State.DEAD),
        (False, True, False, "cancelled", State.CANCELLED),
        (False, True, True, "abandoned", State.CANCELLED),
        (False, False, True, "succeeded", State.SUCCEEDED),
    ],
)
def test_how_a_flow_ends(failures, cancelled, abandoned, ended, state):
    found = end_of_flow(failures=failures, cancelled=cancelled, abandoned=abandoned)
    assert (found, END_STATE[found]) == (ended, state)


@pytest.mark.parametrize("name", [name for name in Internal.__struct_fields__ if name != "flow"])
def test_what_a_job_was_enqueued_with_stays_when_it_joins_a_flow(name):
    follow_up = FollowUp("t", "q", msgspec.Raw(b"{}"))
    values = {
        "after": ((0, "fail"),), "after_jobs": (("x", "fail"),), "holes": True, "tolerated": True,
        "not_run": "not_needed", "on_success": follow_up, "on_dead": follow_up,
    }  # fmt: skip
    own = Internal(**{name: values.get(name, 7)})
    joined = read(added(write(own), Internal(flow="f")))
    assert (joined.flow, getattr(joined, name)) == ("f", getattr(own, name))


def test_a_flow_sets_its_own_fields():
    about = Internal(flow="f", after=((0, "ignore"),), holes=True)
    assert added(None, about) == write(about)
    assert read(added(write(Internal(expires_in=5.0)), about)) == Internal(
        flow="f", after=((0, "ignore"),), holes=True, expires_in=5.0
    )


@pytest.mark.parametrize(
    ("partly", "payload"), [(False, b'{"a":3,"b":null,"c":null}'), (True, b'{"a":3,"b":null,"c":{"$result":2}}')]
)
def test_results_of_unfinished_parents_are_left_out_only_where_that_is_wanted(partly, payload):
    holes = b'{"a":{"$result":0},"b":{"$result":1},"c":{"$result":2}}'
    child = msgspec.structs.replace(job(3, holes=True), payload=holes)
    ended = msgspec.structs.replace(job(0, State.SUCCEEDED), result=b"3")
    parents = {one.id: one for one in (ended, job(1, State.DEAD), job(2, State.QUEUED))}
    assert fill_results(child, parents, partly=partly) == payload
