"""The reference's jobs: what stays of a removed job and of a holder that has left, and when a claim finds something."""

from holdfast.core.job import LimitKey
from holdfast.core.operations import Output
from holdfast.store.protocol import Batch
from holdfast.store.reference.jobs import Jobs
from holdfast.testing.build import ask, new_job, released, says


def claimed(jobs, *, renews=False):
    [claims] = jobs.write(Batch(asks=[ask("ann")]), 1, lambda _: renews).asks
    return claims.records[0]


def test_nothing_of_a_removed_job_stays_in_memory():
    jobs = Jobs()
    jobs.insert(new_job("a", nonce=7), 1)
    claim = claimed(jobs)
    assert jobs.note(says(claim, output=Output(0, b"line", 100)), 1)
    assert jobs.settle(released(claim), 1)
    jobs.forget(jobs.jobs["a"])
    assert not any([jobs.jobs, jobs.by_seq, jobs.nonces, jobs.settled, jobs.printed])


def test_a_holder_that_has_left_and_claims_again_is_live_again():
    """Else its new claims would be recovered at once, with the one that it still had."""
    jobs = Jobs()
    for id in "ab":
        jobs.insert(new_job(id), 1)
    claimed(jobs)
    jobs.leave("ann")
    before = jobs.holders["ann"].heartbeat
    claimed(jobs)
    assert (jobs.holders["ann"].left, jobs.holders["ann"].heartbeat) == (False, before + 1)


def test_a_claim_finds_a_job_that_waits_for_its_rate_as_soon_as_it_may_start():
    jobs, rate = Jobs(), LimitKey("mail", interval=1000, burst=1)
    for id in "ab":
        jobs.insert(new_job(id, limit_key=rate), 1)
    claimed(jobs)
    jobs.claim(ask("ann"), 1, lambda _: False)
    opening = jobs.ready_queues.next_opening()
    assert [jobs.finds(ask("ann"), now) for now in (opening - 1, opening)] == [False, True]
