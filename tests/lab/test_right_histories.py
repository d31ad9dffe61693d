"""Histories that keep every promise, some of them narrowly: the checker passes them."""

from __future__ import annotations

import pytest

from holdfast.core.chunks import Chunk
from holdfast.testing.history import Entry, Past, check, emitted, got, received
from support.story import SECOND, Story


def right():
    yield "one job", lambda s: s.whole()

    def lost_and_again(s):
        s.enqueue()
        s.heartbeat()
        s.claim()
        s.add(*(Entry("calm") for _ in range(20)))
        s.settle(state="queued", outcome="lost", sweep=True)
        s.claim(fence=2)
        s.settle(fence=1, says="no")  # the first one wakes
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2, past=[Past(1, 1, 1, 5, "lost"), Past(2, 1, 5, 6, "succeeded")])

    yield "lost and run again", lost_and_again

    def sent_again(s):
        s.enqueue()
        s.claim()
        s.run()
        nonce = s.settle(says="unknown")
        s.settle(nonce=nonce)
        s.end()

    yield "a settlement whose answer was lost, sent again", sent_again

    def nobody_knows(s):
        s.enqueue()
        s.claim()
        s.settle(state="queued", outcome="released", says="unknown")
        s.claim(fence=2, attempt=1)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "an end whose answer never came", nobody_knows

    def released(s):
        s.enqueue()
        for fence in range(1, 4):
            s.claim(fence=fence, attempt=1, max_attempts=1)
            s.settle(fence=fence, state="queued", outcome="released")
        s.claim(fence=4, attempt=1, max_attempts=1)
        s.run(fence=4)
        s.settle(fence=4)
        s.end(fence=4)

    yield "releases are not charged", released

    def after_retry(s):
        s.enqueue()
        s.claim()
        s.settle(state="dead")
        s.change(what="state", state="queued", reset_count=1, fence=1)
        s.claim(fence=2, reset_count=1, attempt=1)
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2, reset_count=1)

    yield "an operator's retry raises the reset count", after_retry

    def deleted(s):
        s.enqueue()
        s.change(what="delete")

    yield "a deleted job is no lost one", deleted

    def never_acknowledged(s):
        s.enqueue(says="failed")

    yield "an insert that failed", never_acknowledged

    def by_priority(s):
        s.enqueue("late")
        s.enqueue("first", priority=-1)
        s.claim("first", place=(-1, 5, 2))
        s.claim("late", place=(0, 0, 1))
        s.finish("first", "late")

    yield "the lower priority number first", by_priority

    def overlapping(s):
        s.enqueue("a")
        s.enqueue("b")
        one = s.ask()  # takes a, which stands before b …
        two = s.ask()
        s.take(two, "b", place=(0, 0, 2))  # … but the answer comes later
        s.take(one, "a", place=(0, 0, 1))
        s.finish("a", "b")

    yield "answers that overtake each other", overlapping

    def full_limit_key(s):
        limit_key = {"limit_key": "l", "room": 1}
        s.enqueue("a")
        s.enqueue("b")
        s.enqueue("c")
        s.claim("b", place=(0, 0, 2), **limit_key)
        s.run("b")
        s.settle("b", says="unknown")
        s.claim("a", place=(0, 0, 1), **limit_key)  # held while b ran
        s.claim("c", place=(0, 0, 3), limit_key="m", room=1)
        for job in ("a", "c"):
            s.run(job)
            s.settle(job)
        for job in ("a", "b", "c"):
            s.end(job)

    yield "a limit key that lets one run, then the next", full_limit_key

    def evenly(s):
        limit_key = {"limit_key": "l", "interval": 4 * SECOND, "burst": 2}
        for job in ("a", "b", "c", "d"):
            s.enqueue(job)
        s.claim("a", **limit_key)
        s.claim("b", **limit_key)
        s.claim("c", **limit_key)
        s.add(Entry("calm"))
        s.claim("d", **limit_key)
        s.finish("a", "b", "c", "d")

    yield "a limit key that starts a burst, then evenly", evenly

    def one_after_the_other(s):
        s.enqueue("f.0")
        s.enqueue("f.1", after=[("f.0", "fail")])
        s.enqueue("f.2", after=[("f.0", "compensate"), ("f.1", "compensate")])
        s.claim("f.0")
        s.run("f.0")
        s.settle("f.0", says="unknown")
        s.claim("f.1")
        s.settle("f.1", state="dead")
        s.work("f.2")
        s.end("f.0")
        s.end("f.1", state="dead")

    yield "a job after one that may have ended well, and one that makes up for a death", one_after_the_other

    def grown(s):
        s.enqueue("f.0")
        s.enqueue("f.1", ack=False, key="taken", says="exists", after=[("f.0", "fail")])
        s.whole("f.1", key="free")
        s.work("f.0")

    yield "a job added to a flow with the number of one that was refused", grown

    def given_up(s):
        s.enqueue("f.0")
        s.end("f.0", state="blocked", fence=0, waiting_for="flow_start:f")

    yield "a flow that was never begun", given_up

    def in_steps(s):
        s.enqueue()
        s.claim()
        s.add(got("j", 1, "pay", 17))
        s.settle(state="queued")
        s.claim(fence=2)
        s.add(got("j", 2, "pay", 17))
        s.run(fence=2)
        s.settle(fence=2)
        s.end(fence=2)

    yield "a step that is remembered", in_steps

    def streamed(s):
        s.enqueue()
        s.claim()
        s.add(emitted("j", 1, "x"), emitted("j", 1, "y"))
        s.settle(state="queued")
        s.claim(fence=2)
        s.add(emitted("j", 2, "z"))
        s.run(fence=2)
        s.settle(fence=2)
        for reader in ("a", "b"):
            s.add(received("j", Chunk("x", 4, 1), reader), received("j", Chunk("z", 8, 2), reader))
        s.end(fence=2)

    yield "a stream without the last chunk of an attempt that was lost", streamed

    def one_by_one(s):
        for unique in ("queued", "live"):
            s.whole(f"{unique}-1", ack=False, key=unique, unique=unique)
            s.whole(f"{unique}-2", ack=False, key=unique, unique=unique)
        s.enqueue("queued-3", ack=False, key="queued", unique="until_start")
        s.whole("w-1", ack=False, key="window", unique="window", window=3.0)
        s.whole("w-2", ack=False, key="window", unique="window", window=3.0)
        s.work("queued-3")

    yield "keys that stand for one job after the other", one_by_one


@pytest.mark.parametrize(("name", "play"), list(right()), ids=[name for name, _ in right()])
def test_a_history_that_keeps_the_promises_passes(name, play):
    story = Story()
    play(story)
    verdict = check(story.entries)
    assert verdict, verdict.explain()
