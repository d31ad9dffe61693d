"""What a worker runs, compared with what the store says that it holds."""

import asyncio
import logging
import os
from types import SimpleNamespace

import pytest

from holdfast import State
from holdfast.core.clock import Entropy
from holdfast.core.operations import HeartbeatReply, HeldClaim
from holdfast.store.group_commit import GroupCommit
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock, build
from holdfast.testing.verbs import apply, claim_one, insert, job, running, settle
from holdfast.worker.lease import Leases
from holdfast.worker.run import Run
from holdfast.worker.slots import Slots
from holdfast.worker.unstarted import Unstarted, shared_memory

LEASE = 6.0


class Scene:
    """A worker `ann` with its slots, and the claims that it gives back."""

    def __init__(self):
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.commit = GroupCommit(self.store, Entropy(1))
        self.slots = Slots(8)
        self.given_back, self.may_settle = [], asyncio.Event()
        self.may_settle.set()
        self.error = None
        session = SimpleNamespace(store=self.store, commit=self.commit, clock=self.clock)
        self.leases = Leases(session, self, self.slots, build.holder("ann", LEASE))

    async def settle(self, record, outcome):
        """As `ManualClaims.settle`."""
        await self.may_settle.wait()
        if self.error is not None:
            raise self.error
        self.given_back.append((record.id, record.fence, outcome.kind))

    async def runs(self, id):
        """A job that was claimed and runs here."""
        run = Run(await running(self.store, id, self.leases.holder, queue=id))
        self.slots.add(run)
        return run

    def received(self, *held, known=None):
        """A beat is answered: these claims are held."""
        self.leases._compare(self.leases.before_heartbeat() if known is None else known, HeartbeatReply(1, held))

    async def done(self):
        """Whatever a beat has begun has ended."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def scene():
    return Scene()


def held(record, *, cancel=False):
    return HeldClaim(record.id, record.seq, record.fence, record.token, cancel)


# -- lost


async def test_a_run_that_the_store_does_not_name_is_lost_and_others_are_not(scene):
    lost, kept = await scene.runs("lost"), await scene.runs("kept")
    scene.received(held(kept.record))
    assert (lost.why, kept.why) == ("lost", None)
    await scene.leases.close()


async def test_a_run_that_began_after_the_heartbeat_is_not_lost(scene):
    known = scene.leases.before_heartbeat()
    run = await scene.runs("new")
    assert (known, scene.leases.before_heartbeat()) == (frozenset(), frozenset({("new", 1)}))
    scene.received(known=known)
    assert run.why is None


async def test_a_run_that_ended_since_the_heartbeat_is_ignored(scene):
    run = await scene.runs("ended")
    known = scene.leases.before_heartbeat()
    scene.slots.remove(run)
    scene.received(known=known)
    assert run.why is None
    assert not scene.leases._clearing


async def test_a_run_is_lost_once_and_also_when_it_was_to_be_cancelled(scene, monkeypatch):
    run, looked = await scene.runs("lost"), []
    get = scene.store.get

    async def look(ids):
        looked.append(ids)
        return await get(ids)

    monkeypatch.setattr(scene.store, "get", look)
    run.stop("cancel")
    for _ in range(2):
        scene.received()
        await scene.leases.close()
    assert (run.why, looked) == ("lost", [["lost"]])


async def recovered(scene, by):
    """All of a holder's claims are taken from it, as if it had crashed under them."""
    scene.clock.advance(10 * LEASE)
    for one in await scene.store.expired(100, by):
        assert await settle(scene.store, build.swept(one, crashes=-2))


async def test_a_job_taken_from_a_live_worker_runs_as_before(scene):
    await scene.runs("taken")
    await recovered(scene, "ann")
    assert (await job(scene.store, "taken")).quarantined
    scene.received()
    await scene.leases.close()
    taken = await job(scene.store, "taken")
    assert (taken.state, taken.quarantined, taken.crashes) == (State.QUEUED, False, 0)


async def test_a_job_that_another_has_claimed_since_is_left_alone(scene):
    await scene.runs("theirs")
    await scene.runs("ended")
    await scene.runs("deleted")
    await recovered(scene, "ann")
    for name in ("theirs", "ended", "deleted"):
        their = await claim_one(scene.store, build.holder("bob", LEASE), name)
        if name != "theirs":
            await settle(scene.store, build.succeeded(their, keep=0.0 if name == "deleted" else 100.0))
    await recovered(scene, "bob")
    before = await scene.store.get(["theirs", "ended", "deleted"])
    writes, write = [], scene.store.write

    async def counted(batch):
        writes.append(batch)
        return await write(batch)

    scene.store.write = counted
    scene.received()
    await scene.leases.close()
    assert await scene.store.get(["theirs", "ended", "deleted"]) == before
    assert (before[0].quarantined, before[1].state, before[2], writes) == (True, State.SUCCEEDED, None, [])


# -- cancelled


async def test_a_cancellation_reaches_a_run_once(scene):
    run, interrupted = await scene.runs("run"), []
    run.runner, run.begun = SimpleNamespace(cancel=lambda: interrupted.append("run")), True
    scene.received(held(run.record))
    assert run.why is None
    for _ in range(2):
        scene.received(held(run.record, cancel=True))
    assert (run.why, interrupted) == ("cancel", ["run"])


async def test_a_cancellation_of_what_does_not_run_here_any_more_harms_nobody(scene):
    run = await scene.runs("run")
    known = scene.leases.before_heartbeat()
    scene.slots.remove(run)
    scene.received(held(run.record, cancel=True), known=known)
    assert run.why is None


# -- claims that never arrived


async def test_a_claim_that_never_arrived_is_released_after_half_a_heartbeat(scene):
    record = await running(scene.store, "stray", scene.leases.holder)
    scene.received(held(record))
    scene.clock.advance(LEASE / 6)
    scene.received(held(record))
    await scene.done()
    assert scene.given_back == []
    scene.clock.advance(0.001)
    scene.received(held(record))
    await scene.done()
    assert scene.given_back == [("stray", 1, "released")]


async def test_a_claim_that_is_known_here_is_not_given_back(scene):
    run = await scene.runs("runs")
    ends, waiting_for = [
        await running(scene.store, id, scene.leases.holder, queue=id) for id in ("ends", "waiting_for")
    ]
    scene.slots.settling.add((ends.id, ends.fence))
    scene.leases._unanswered.add(waiting_for.token)
    for _ in range(3):
        scene.received(held(run.record), held(ends), held(waiting_for))
        scene.clock.advance(LEASE)
    await scene.done()
    assert (scene.given_back, scene.leases._releasing) == ([], None)


async def test_a_claim_that_was_known_in_between_begins_anew(scene):
    record = await running(scene.store, "stray", scene.leases.holder)
    scene.received(held(record))
    scene.clock.advance(LEASE)
    scene.received()
    scene.received(held(record))
    await scene.done()
    assert scene.given_back == []


async def test_claims_are_given_back_once_while_that_takes_long(scene):
    first, second = [await running(scene.store, id, scene.leases.holder, queue=id) for id in ("first", "second")]
    scene.may_settle.clear()
    scene.received(held(first), held(second))
    scene.clock.advance(LEASE)
    for _ in range(3):
        scene.received(held(first), held(second))
        await scene.done()
    scene.may_settle.set()
    await scene.done()
    assert scene.given_back == [("first", 1, "released"), ("second", 1, "released")]
    scene.received(held(second))
    await scene.done()
    assert scene.given_back[2:] == [("second", 1, "released")], "it did not help, so it is given back again"


async def test_only_claims_that_are_still_ours_are_given_back(scene):
    records = [await running(scene.store, id, scene.leases.holder, queue=id) for id in ("ours", "theirs", "again")]
    deleted = await running(scene.store, "deleted", scene.leases.holder, queue="deleted")
    scene.received(*map(held, (*records, deleted)))
    for id, by in (("theirs", "bob"), ("again", "ann")):
        await settle(scene.store, build.released(await job(scene.store, id)))
        await claim_one(scene.store, build.holder(by, LEASE), id)
    await settle(scene.store, build.succeeded(deleted, keep=0.0))
    scene.clock.advance(LEASE / 2)
    scene.received(*map(held, (*records, deleted)))
    await scene.done()
    assert scene.given_back == [("ours", 1, "released")]


async def test_a_claim_that_cannot_be_given_back_is_reported_in_the_log(scene, caplog):
    record = await running(scene.store, "stray", scene.leases.holder)
    scene.error = RuntimeError("away")
    scene.received(held(record))
    scene.clock.advance(LEASE)
    with caplog.at_level(logging.WARNING, "holdfast"):
        scene.received(held(record))
        await scene.done()
    assert "away" in caplog.text
    scene.error = None
    caplog.clear()
    scene.received(held(record))
    await scene.done()
    assert (scene.given_back, caplog.text) == ([("stray", 1, "released")], "")


async def test_a_crash_count_that_cannot_be_undone_is_reported_in_the_log(scene, caplog, monkeypatch):
    async def away(ids):
        raise RuntimeError("away")

    await scene.runs("lost")
    monkeypatch.setattr(scene.store, "get", away)
    with caplog.at_level(logging.WARNING, "holdfast"):
        scene.received()
        await scene.done()
    assert "could not undo the crash count" in caplog.text


async def test_who_closes_waits_for_no_claim_that_is_being_given_back(scene):
    record, broken = await running(scene.store, "stray", scene.leases.holder), []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: broken.append(about))
    scene.may_settle.clear()
    scene.received(held(record))
    scene.clock.advance(LEASE)
    scene.received(held(record))
    await scene.done()
    await asyncio.wait_for(scene.leases.close(), 90)
    assert scene.leases._releasing.cancelled()
    await scene.done()
    assert (scene.given_back, broken) == ([], [])


# -- claims, and the heartbeat's thread


@pytest.mark.parametrize("error", [None, RuntimeError("it cannot begin")])
async def test_a_claim_is_on_its_way_until_its_jobs_have_begun(scene, error):
    await insert(scene.store, build.new_job("a"), build.new_job("b"))
    ask, seen = build.ask(scene.leases.holder, limit=2), []

    def begin(record):
        seen.append((record.id, scene.leases._unanswered == {ask.token}))
        if error is not None:
            raise error

    if error is None:
        claims = await scene.leases.claim(ask, begin)
        assert [record.id for record in claims.records] == ["a", "b"]
        assert seen == [("a", True), ("b", True)]
    else:
        with pytest.raises(RuntimeError, match="cannot begin"):
            await scene.leases.claim(ask, begin)
    assert scene.leases._unanswered == set()


async def test_a_supervisor_knows_which_claims_had_not_begun(scene):
    await insert(scene.store, build.new_job("a"))
    fd = shared_memory()
    scene.leases._unstarted = shared = Unstarted(fd)
    os.close(fd)
    seen = []
    claims = await scene.leases.claim(build.ask(scene.leases.holder), lambda one: seen.append(shared.covers(one)))
    [record] = claims.records
    assert (seen, shared.covers(record)) == ([True], False)


async def test_a_notification_asks_for_a_heartbeat_until_the_leases_are_closed(scene):
    asked, run = asyncio.Event(), await scene.runs("job")
    scene.leases.watch(asked.set)
    await scene.done()
    await apply(scene.store, build.cancellation(run.record))
    await asyncio.wait_for(asked.wait(), 90)
    await scene.leases.close()
    assert scene.leases._watching.cancelled(), "it has ended, not only been told to"


async def test_a_worker_is_idle_without_runs_unwritten_outcomes_and_unanswered_claims(scene):
    run = await scene.runs("job")
    assert not scene.leases.idle
    scene.slots.remove(run)
    assert scene.leases.idle
    for busy in (scene.slots.settling, scene.leases._unanswered):
        busy.add(("job", 1))
        assert not scene.leases.idle
        busy.clear()
    assert scene.leases.idle


async def test_the_answer_to_a_heartbeat_is_compared_on_the_loop_of_the_worker(scene):
    run = await scene.runs("lost")
    known = scene.leases.before_heartbeat()
    assert await asyncio.to_thread(scene.leases.after_heartbeat, known, HeartbeatReply(1, ())) is True
    await scene.done()
    assert run.why == "lost"


async def test_a_heartbeat_is_reported_when_the_loop_of_its_worker_is_gone(scene):
    scene.leases._loop = asyncio.new_event_loop()
    scene.leases._loop.close()
    assert scene.leases.after_heartbeat(frozenset(), HeartbeatReply(1, ())) is False
