"""One history for each way in which a rule can be broken: the checker finds it, by that rule."""

from __future__ import annotations

import pytest

from holdfast.core.chunks import Chunk
from holdfast.testing.history import (
    OF_ALL,
    OF_JOB,
    Entry,
    Past,
    began,
    check,
    denied,
    emitted,
    got,
    held_by_expired_holder,
    left,
    ran,
    received,
)
from support.story import SECOND, Story


def wrong():
    def lost(s):
        s.enqueue()

    yield "no_acknowledged_job_is_lost", "gone", lost

    def stored_only(s):
        s.enqueue(ack=False)

    yield "no_acknowledged_job_is_lost", "known to its store alone", stored_only

    def endless(s):
        s.enqueue()
        s.end(state="queued", fence=0)

    yield "every_job_has_an_end", "still queued", endless

    def called_unwritten(s):
        s.enqueue(says="failed")
        s.end(state="cancelled", fence=0)

    yield "nothing_is_written_that_was_called_unwritten", "an insert", called_unwritten

    def denied_to_its_program(s):
        s.whole()
        s.add(denied("j"))

    yield "nothing_is_written_that_was_called_unwritten", "its program got that error", denied_to_its_program

    def end_called_unwritten(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="released", says="failed")
        s.claim(fence=2, attempt=1)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "nothing_is_written_that_was_called_unwritten", "an end", end_called_unwritten

    def ends_twice(s):
        s.enqueue()
        s.claim()
        s.run()
        s.settle(state="dead")
        s.change(what="state", state="cancelled", fence=1)
        s.end(state="dead")

    yield "one_end_per_reset_count", "dead, then cancelled", ends_twice

    def released_while_it_ran(s):
        s.enqueue()
        s.claim()
        s.add(began("j", 1))
        s.settle(state="queued", outcome="released")
        s.add(ran("j", 1))
        s.claim(fence=2, attempt=1)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "nothing_runs_after_its_release", "released while it ran", released_while_it_ran

    def after_the_end(s):
        s.whole()
        s.claim(fence=2)
        s.settle(fence=2, state="queued", outcome="released")
        s.end(fence=1)

    yield "one_end_per_reset_count", "claimed after its end", after_the_end

    def same_fence(s):
        s.enqueue()
        s.claim()
        s.claim()
        s.run()
        s.settle()
        s.end()

    yield "every_claim_has_a_new_fence", "twice", same_fence

    def lower_fence(s):
        s.enqueue()
        s.claim(fence=2)
        s.settle(fence=2, state="queued", outcome="released")
        s.claim(fence=1)
        s.run()
        s.settle()
        s.end(fence=2, state="dead")

    yield "every_claim_has_a_new_fence", "falling", lower_fence

    def two_holders(s):
        s.enqueue()
        s.claim()
        s.claim(fence=2)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "a_claim_ends_before_the_next", "nobody ended the first", two_holders

    def refused_end(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="lost", says="no", sweep=True)
        s.claim(fence=2)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "a_claim_ends_before_the_next", "the only end was refused", refused_end

    def overlap_by_time(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="lost", sweep=True)
        s.claim(fence=2)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2, past=[Past(1, 1, 0, 9 * SECOND, "lost"), Past(2, 1, 5 * SECOND, 12 * SECOND, "succeeded")])

    yield "a_claim_ends_before_the_next", "by the store's time", overlap_by_time

    def early(s):
        s.enqueue()
        s.claim()
        s.heartbeat()
        s.settle(state="queued", outcome="lost", sweep=True)
        s.claim(fence=2)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "no_lease_ends_early", "swept after a beat", early

    def stale(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="lost", says="unknown", sweep=True)
        s.claim(fence=2)
        s.settle(fence=1, state="queued", outcome="released")
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "no_superseded_fence_is_accepted", "an old fence", stale

    def ended_by_two(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="released")
        s.settle(state="queued", outcome="lost", sweep=True)
        s.claim(fence=2)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "no_superseded_fence_is_accepted", "one claim ended by two", ended_by_two

    def stale_note(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="released")
        s.claim(fence=2)
        call = s.call()
        s.add(Entry("note", call=call, job="j", fence=1))
        s.answered(call, notes=[True])
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "no_superseded_fence_is_accepted", "a note", stale_note

    def released_and_run(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="released")
        s.run()
        s.claim(fence=2)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "nothing_runs_after_its_release", "a claim that its own worker released", released_and_run

    def too_often(s):
        s.enqueue()
        s.claim(max_attempts=1)
        s.settle(state="queued", outcome="lost", sweep=True)
        s.claim(fence=2, attempt=1, max_attempts=1)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "starts_stay_within_the_bound", "more starts than counted", too_often

    def counted_too_far(s):
        s.enqueue()
        s.claim(attempt=3, max_attempts=2)
        s.run()
        s.settle()
        s.end()

    yield "starts_stay_within_the_bound", "an attempt too many", counted_too_far

    def runs_twice(s):
        s.enqueue()
        s.claim()
        s.run()
        s.run()
        s.settle()
        s.end()

    yield "starts_stay_within_the_bound", "twice under one claim", runs_twice

    def other_result(s):
        s.enqueue()
        s.claim()
        s.run()
        s.settle(result="aa")
        s.end(result="bb")

    yield "it_ends_as_it_was_settled", "another result", other_result

    def other_state(s):
        s.enqueue()
        s.claim()
        s.settle(state="dead")
        s.end(state="cancelled")

    yield "it_ends_as_it_was_settled", "another state", other_state

    def never_run(s):
        s.enqueue()
        s.claim()
        s.settle()
        s.end()

    yield "it_ends_as_it_was_settled", "a success that nobody worked for", never_run

    def blamed(s):
        s.enqueue(expect="succeeded")
        s.claim()
        s.settle(state="dead")
        s.end(state="dead")

    yield "it_ends_as_it_must", "a neighbour is blamed", blamed

    def stuck(s):
        s.whole()
        s.add(held_by_expired_holder("j", "w"))

    yield "no_claim_stays_with_an_expired_holder", "held by the dead", stuck

    def two_jobs(s):
        s.whole("a", key="k")
        s.whole("b", key="k")

    yield "one_job_per_key", "two jobs", two_jobs

    def passed_over(s):
        s.enqueue("first")
        s.enqueue("second")
        s.claim("second", place=(0, 0, 2))
        s.claim("first", place=(0, 0, 1))
        s.finish("first", "second")

    yield "the_first_in_order_is_claimed_first", "passed over", passed_over

    def crowded(s):
        for job in ("a", "b"):
            s.enqueue(job)
            s.claim(job, limit_key="l", room=1)
        s.finish("a", "b")

    yield "no_limit_key_runs_more_than_it_may", "two where one may run", crowded

    def hasty(s):
        for job in ("a", "b", "c"):
            s.whole_in(job, limit_key="l", interval=40 * SECOND, burst=2)

    yield "no_limit_key_starts_more_often_than_it_may", "a third within a burst of two", hasty

    def flow(on_dead, state, *, early=False):
        def play(s):
            s.enqueue("f.0")
            s.enqueue("f.1", after=[("f.0", on_dead)])
            s.claim("f.0")
            s.run("f.0")
            if early:
                s.claim("f.1")
            s.settle("f.0", state=state)
            if not early:
                s.claim("f.1")
            s.run("f.1")
            s.settle("f.1")
            s.end("f.0", state=state)
            s.end("f.1")

        return play

    rule = "nothing_runs_before_its_parents"
    yield rule, "claimed before its parent had ended", flow("ignore", "succeeded", early=True)
    yield rule, "claimed though its parent had died", flow("fail", "dead")
    yield rule, "claimed though there was nothing to make up for", flow("compensate", "succeeded")

    def begun_too_soon(s):
        s.enqueue("f.0")
        s.claim("f.0")
        s.end("f.0", state="running")

    yield "every_job_has_an_end", "claimed though its flow has not begun", begun_too_soon

    def run_again(s):
        s.enqueue()
        s.claim()
        s.add(got("j", 1, "pay", 17))
        s.settle(state="queued")
        s.claim(fence=2)
        s.add(got("j", 2, "pay", 18))
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "a_step_is_remembered", "a step that was run again", run_again

    def streamed(*chunks, reader="a"):
        return [received("j", Chunk(value, position, fence), reader) for fence, position, value in chunks]

    def stream_of(*received):
        def story(s):
            s.enqueue()
            s.claim()
            s.add(emitted("j", 1, "x"), emitted("j", 1, "y"))
            s.settle(state="queued")
            s.claim(fence=2)
            s.add(emitted("j", 2, "z"))
            s.run(fence=2)
            s.settle(fence=2)
            s.add(*received)
            s.end(fence=2)

        return story

    stream = "a_stream_is_what_its_claims_emitted"
    yield stream, "a chunk received twice", stream_of(*streamed((1, 4, "x"), (1, 4, "x"), (2, 8, "z")))
    yield stream, "an old claim's chunk after a new one's", stream_of(*streamed((2, 4, "z"), (1, 8, "x")))
    yield stream, "chunks in another order", stream_of(*streamed((1, 4, "y"), (1, 8, "x"), (2, 12, "z")))
    yield stream, "a chunk that the claim did not emit", stream_of(*streamed((1, 4, "z"), (2, 8, "z")))
    yield stream, "a chunk of the last claim is missing", stream_of(*streamed((1, 4, "x")))
    yield (
        stream,
        "readers that differ",
        stream_of(*streamed((1, 4, "x"), (2, 8, "z")), *streamed((2, 8, "z"), reader="b")),
    )

    def twice_at_once(unique):
        def play(s):
            for job in ("a", "b"):
                s.enqueue(job, ack=False, key="k", unique=unique, window=60.0)
            for job in ("a", "b"):
                s.work(job)

        return play

    for unique in ("queued", "live", "window"):
        yield "one_job_at_a_time_per_key", f"two at once ({unique})", twice_at_once(unique)

    def process_left(s):
        s.whole()
        s.add(left("process 17"))

    yield "nothing_is_left_behind", "a process", process_left


CASES = list(wrong())


@pytest.mark.parametrize(("rule", "name", "play"), CASES, ids=[f"{rule}: {name}" for rule, name, _ in CASES])
def test_a_history_that_breaks_a_rule_is_caught_by_it(rule, name, play):
    story = Story()
    play(story)
    verdict = check(story.entries)
    assert rule in {one.rule for one in verdict.violations}, verdict.explain()


def test_every_rule_is_seen_to_fail():
    assert {rule for rule, _, _ in CASES} == {rule.__name__ for rule in (*OF_JOB, *OF_ALL)}
