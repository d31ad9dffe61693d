"""Submit and claim: the level below tasks, for people who consume by hand."""

import asyncio
import os
import threading

import pytest

from holdfast import Holdfast, InvalidJob, JobFailed, LeaseLost, PayloadTooLarge, State, StoreUnavailable
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off


@pytest.fixture
async def claim(app):
    """The claim of a job that was just submitted."""
    await app.submit("resize", b"\xff\0raw", id="job")
    [claim] = await app.claim()
    return claim


async def lose(app, claim):
    """End the claim from another process, as a sweeper or an operator would."""
    await app.handle(claim.job.id).mark_failed("a monitor says it is lost")


# -- submit


async def test_raw_bytes_are_stored_and_handed_over_as_they_are(app):
    payload = bytes(range(256))
    handle = await app.submit("resize", payload, queue="images", priority=3, tags=["a"], meta={"b": 1}, max_attempts=2)
    job = await handle.job()
    assert (job.task, job.queue, job.priority, job.tags, job.meta) == ("resize", "images", 3, ("a",), {"b": 1})
    assert list(job.payload) == ["$bytes"]
    [claim] = await app.claim("images")
    assert claim.payload == payload


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_anything_that_is_bytes_will_do(app, kind):
    await app.submit("resize", kind(b"abc"))
    [claim] = await app.claim()
    assert claim.payload == b"abc"


async def test_json_of_ones_own_is_readable_and_runs_as_a_task(app):
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    handle = await app.submit("add", b'{"a": 1, "b": 2}', json=True)
    assert (await handle.job()).payload == {"a": 1, "b": 2}
    await work_off(app)
    assert await handle.result(timeout=30) == 3


@pytest.mark.parametrize(
    "payload", [b"[1]", b"nonsense", b'{"a": NaN}', b'"text"', b"\xff", b"", b'{"a":"\\u0000"}', b'{"a":"\\ud800"}']
)
async def test_json_that_is_no_object_or_no_json_is_refused(app, payload):
    with pytest.raises(InvalidJob):
        await app.submit("add", payload, json=True)
    assert (await app.jobs()).jobs == []


# -- claim


async def test_a_claim_gives_the_job_and_its_fence(app, claim):
    assert (claim.job.id, claim.job.task, claim.payload) == ("job", "resize", b"\xff\0raw")
    assert (claim.job.state, claim.job.attempt, claim.fence) == (State.RUNNING, 1, 1)
    assert repr(claim) == "<Claim 'job' fence=1>"
    assert await app.claim() == [], "nobody else gets it"


async def test_claims_are_bounded_and_come_in_order(app):
    for name, priority in (("late", 5), ("first", -5), ("second", 0), ("third", 0)):
        await app.submit("work", b"", id=name, priority=priority)
    assert [claim.job.id for claim in await app.claim(limit=3)] == ["first", "second", "third"]
    assert [claim.job.id for claim in await app.claim(limit=3)] == ["late"]
    assert await app.claim(limit=3) == []


async def test_claims_can_be_bounded_to_queues_and_tasks(app):
    await app.submit("a", b"", queue="one", id="1a")
    await app.submit("b", b"", queue="one", id="1b")
    await app.submit("a", b"", queue="two", id="2a")
    assert await app.claim() == []
    assert [claim.job.id for claim in await app.claim(["one", "two"], tasks=["a"], limit=5)] == ["1a", "2a"]
    assert [claim.job.id for claim in await app.claim("one", limit=5)] == ["1b"]


async def test_a_scheduled_job_cannot_be_claimed_before_its_time(app):
    await app.submit("a", b"", delay=60)
    assert await app.claim() == []


# -- how a claim ends


async def test_complete_ends_the_job_with_its_result(app, claim):
    await claim.complete({"width": 640})
    job = await app.job("job")
    assert (job.state, job.result) == (State.SUCCEEDED, {"width": 640})
    assert await app.handle("job").result(timeout=30) == {"width": 640}


async def test_complete_without_a_result_gives_none(app, claim):
    await claim.complete()
    assert await app.handle("job").result(timeout=30) is None


async def test_fail_leaves_the_rest_to_the_retry_rules(app, claim):
    await claim.fail("no space left")
    job = await app.job("job")
    assert (job.state, job.error, job.attempt) == (State.FAILED, "no space left", 1)
    assert 9 < (job.run_at - job.history[0].ended_at).total_seconds() < 13


async def test_fail_may_name_the_time_of_the_next_attempt(app, claim):
    await claim.fail("busy", retry_in=0)
    [again] = await app.claim()
    assert (again.job.attempt, again.fence) == (2, 2)


async def test_fail_may_say_that_it_is_for_good(app, claim):
    await claim.fail("broken file", dead=True)
    with pytest.raises(JobFailed, match="broken file"):
        await app.handle("job").result(timeout=30)


async def test_fail_takes_an_exception_as_well(app, claim):
    await claim.fail(ValueError("broken file"))
    assert (await app.job("job")).error == "ValueError: broken file"


async def test_release_gives_the_job_back_uncharged(app, claim):
    await claim.release()
    job = await app.job("job")
    assert (job.state, job.attempt, job.worker) == (State.QUEUED, 0, None)
    assert job.history[0].outcome == "released"


async def test_release_with_a_delay_comes_later(app, claim):
    await claim.release(delay=60)
    job = await app.job("job")
    assert (job.state, job.attempt) == (State.SCHEDULED, 0)
    assert await app.claim() == []


async def test_cancel_ends_the_job_as_cancelled(app, claim):
    await claim.cancel()
    assert (await app.job("job")).state == State.CANCELLED


async def test_started_records_the_process_that_works_on_it(app, claim):
    assert (await app.job("job")).pid == os.getpid()
    await claim.started(4242)
    assert (await app.job("job")).pid == 4242


@pytest.mark.parametrize("how", ["complete", "fail", "release", "cancel", "extend", "started"])
@pytest.mark.parametrize("after", ["lost", "completed"])
async def test_an_ended_claim_can_do_nothing_more(app, claim, how, after):
    if after == "lost":
        await lose(app, claim)
    else:
        await claim.complete("mine")
    before = await app.job("job")
    args = {"complete": ("again",), "fail": ("again",), "started": (1,)}.get(how, ())
    with pytest.raises(LeaseLost, match="the claim on job 'job' with fence 1") as refused:
        await getattr(claim, how)(*args)
    assert (refused.value.job_id, refused.value.fence, refused.value.retry_safe) == ("job", 1, False)
    assert await app.job("job") == before


async def test_an_old_claim_cannot_end_a_newer_one(app, claim):
    await claim.fail("busy", retry_in=0)
    [newer] = await app.claim()
    for end in (claim.complete("old"), claim.fail("old"), claim.release(), claim.cancel(), claim.extend()):
        with pytest.raises(LeaseLost):
            await end
    await newer.complete("new")
    assert await app.handle("job").result(timeout=30) == "new"


async def test_a_result_that_cannot_be_stored_leaves_the_claim_as_it_was(app, claim):
    with pytest.raises(InvalidJob):
        await claim.complete(object())
    await claim.complete("this can")
    assert await app.handle("job").result(timeout=30) == "this can"


async def test_a_result_over_the_limit_is_refused_and_the_claim_stays(make_app):
    app = make_app(max_payload=1000)
    await app.submit("a", b"", id="job")
    [claim] = await app.claim()
    with pytest.raises(PayloadTooLarge, match="max_payload"):
        await claim.complete("x" * 2000)
    assert (await app.job("job")).state == State.RUNNING


async def test_a_result_of_just_the_limit_is_stored(make_app):
    async with make_app(max_payload=1000) as app:
        handle = await app.enqueue("work")
        [claim] = await app.claim()
        await claim.complete("x" * 998)  # and two quotes
        assert await handle.result(timeout=30) == "x" * 998


async def test_a_failure_after_a_requested_cancellation_is_a_cancellation(app, claim):
    assert await app.cancel("job") is True
    job = await app.job("job")
    assert (job.state, job.cancel_requested) == (State.RUNNING, True)
    await claim.fail("stopped")
    assert (await app.job("job")).state == State.CANCELLED


async def test_work_that_is_done_is_done_though_its_cancellation_was_asked_for(app, claim):
    await app.cancel("job")
    await claim.complete("done")
    assert (await app.job("job")).state == State.SUCCEEDED


@pytest.mark.parametrize(
    "end",
    [
        lambda claim: claim.fail(5),
        lambda claim: claim.fail(None),
        lambda claim: claim.fail("no", retry_in="soon"),
        lambda claim: claim.fail("no", retry_in=float("nan")),
        lambda claim: claim.release(delay="soon"),
        lambda claim: claim.release(delay=float("nan")),
        lambda claim: claim.complete(object()),
        lambda claim: claim.complete(float("nan")),
        lambda claim: claim.started("me"),
        lambda claim: claim.started(None),
        lambda claim: claim.started(-5),
    ],
)
async def test_a_claim_that_is_ended_in_a_wrong_way_stays_valid(app, end):
    await app.submit("a", b"", id="job")
    [claim] = await app.claim()
    with pytest.raises(InvalidJob):
        await end(claim)
    await claim.complete("right")
    assert (await app.job("job")).result == "right"


# -- leases


def on_a_manual_clock():
    clock = ManualClock()
    return Holdfast(MemoryStore(clock), clock=clock), clock


async def test_extend_renews_the_lease_of_every_claim_of_the_call():
    app, clock = on_a_manual_clock()
    async with app:
        await app.submit("a", b"")
        await app.submit("a", b"")
        one, two = await app.claim(limit=2, lease=10)
        for _ in range(5):
            clock.advance(8)
            await one.extend()
        assert await app.bulk.recover() == 0
        await two.complete()
        await one.complete()


async def test_a_lost_lease_is_recovered_by_the_next_claim():
    app, clock = on_a_manual_clock()
    async with app:
        await app.submit("a", b"", id="job")
        [lost] = await app.claim(lease=10)
        clock.advance(9)
        assert await app.claim() == []
        clock.advance(2)
        [again] = await app.claim()
        assert (again.job.attempt, again.fence, again.job.quarantined) == (2, 2, True)
        with pytest.raises(LeaseLost):
            await lost.complete("too late")
        await again.complete("in time")
        job = await app.job("job")
        assert [line.outcome for line in job.history] == ["lost", "succeeded"]


async def test_a_late_holder_may_settle_while_nobody_has_ended_its_claim():
    app, clock = on_a_manual_clock()
    async with app:
        await app.submit("a", b"", id="job")
        [claim] = await app.claim(lease=10)
        clock.advance(1000)
        await claim.complete("late, but nobody minded")
        assert (await app.job("job")).state == State.SUCCEEDED


async def test_recover_says_how_many_it_found():
    app, clock = on_a_manual_clock()
    async with app:
        for _ in range(3):
            await app.submit("a", b"")
        await app.claim(limit=3, lease=10)
        assert await app.bulk.recover() == 0
        clock.advance(11)
        assert await app.bulk.recover() == 3
        assert await app.bulk.recover() == 0
        assert (await app.stats()).counts["queued"] == 3


async def test_recovered_jobs_are_events():
    app, clock = on_a_manual_clock()
    seen = []
    app.on("*", lambda event: seen.append((event.name, getattr(event, "job_id", None))))
    async with app:
        await app.submit("a", b"", id="job")
        await app.claim(lease=10)
        clock.advance(11)
        seen.clear()
        assert await app.bulk.recover() == 1
        assert seen[:2] == [("job_lost", "job"), ("sweep_complete", None)]


async def test_no_lease_counts_as_expired_after_a_recovery_that_could_not_be_written():
    app, clock = on_a_manual_clock()
    async with app:
        await app.submit("a", b"")
        await app.claim(lease=10)
        clock.advance(11)
        store = session_of(app).store
        write = store.write

        async def refuse(batch):
            raise StoreUnavailable("away")

        store.write = refuse
        with pytest.raises(StoreUnavailable):
            await app.bulk.recover()
        store.write = write
        assert await app.bulk.recover() == 0, "the heartbeats of live workers come first"
        clock.advance(30)
        assert await app.bulk.recover() == 1


async def test_kept_alive_renews_the_lease_while_the_block_runs(app):
    await app.submit("a", b"")
    [claim] = await app.claim(lease=0.9)

    async def heartbeats():
        return (await session_of(app).store.holders())[0].heartbeat

    async with claim.kept_alive() as same:
        assert same is claim
        await eventually(lambda: heartbeats_at_least(heartbeats, 3))
        assert await app.bulk.recover() == 0
    await claim.complete()


async def heartbeats_at_least(heartbeats, count):
    return await heartbeats() >= count


async def test_kept_alive_keeps_the_lease_though_the_loop_is_blocked(app):
    await app.submit("a", b"")
    [claim] = await app.claim(lease=0.9)
    async with claim.kept_alive():
        threading.Event().wait(2.0)  # blocks the loop for more than two leases
        assert await app.bulk.recover() == 0
        await claim.complete("unique")


async def test_a_lost_lease_interrupts_the_block(app):
    await app.submit("a", b"", id="job")
    [claim] = await app.claim(lease=0.3)
    reached = []

    async def consume():
        async with claim.kept_alive():
            await lose(app, claim)
            await asyncio.sleep(5)
            reached.append("the end")

    with pytest.raises(LeaseLost, match="the claim on job 'job' with fence 1"):
        await consume()
    assert reached == []
    assert asyncio.current_task().cancelling() == 0


def test_the_heartbeat_of_a_lost_claim_ends_with_the_loop_of_its_block():
    app, loop = Holdfast("memory://"), asyncio.new_event_loop()

    async def enter():
        await app.submit("a", b"", id="job")
        [claim] = await app.claim(lease=0.3)
        block = claim.kept_alive()
        await block.__aenter__()
        return claim, block

    claim, block = loop.run_until_complete(enter())
    loop.run_until_complete(lose(app, claim))  # in a task of its own: the heartbeat cancels that of the block
    [heartbeat] = [thread for thread in threading.enumerate() if thread.name == "holdfast-heartbeat"]
    loop.close()
    heartbeat.join(90)
    assert not heartbeat.is_alive()
    assert block is not None


async def test_completing_inside_the_block_is_no_loss(app):
    await app.submit("a", b"", id="job")
    [claim] = await app.claim(lease=0.3)

    async def renewed_again(since):
        seen = await session_of(app).store.holders()
        return not seen or seen[0].heartbeat > since

    async with claim.kept_alive():
        await claim.complete("done")
        seen = await session_of(app).store.holders()
        since = seen[0].heartbeat if seen else 0
        await eventually(lambda: renewed_again(since + 1))
    assert (await app.job("job")).result == "done"


async def test_an_error_inside_the_block_comes_out_as_it_is(app, claim):
    with pytest.raises(ZeroDivisionError):
        async with claim.kept_alive():
            _ = 1 / 0
    await claim.fail("division by zero")


async def test_cancelling_the_caller_is_not_taken_for_a_lost_lease(app, claim):
    async def consume():
        async with claim.kept_alive():
            await asyncio.sleep(60)

    consuming = asyncio.create_task(consume())
    await asyncio.sleep(0)
    consuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consuming
    await claim.release()


async def test_a_cancelled_claimer_leaves_nothing_claimed(app):
    for n in range(10):
        await app.submit("a", b"", id=f"{n}")
    claiming = asyncio.create_task(app.claim(limit=10))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait([claiming])

    async def all_queued():
        return (await app.stats()).counts["queued"] == 10

    if claiming.cancelled():
        await eventually(all_queued)


async def test_claims_by_hand_are_listed_beside_the_workers(app, claim):
    [seen] = await app.workers()
    assert (seen.kind, seen.pid, seen.jobs, seen.lease) == ("manual", os.getpid(), ("job",), 300)
    assert (await app.stats()).workers == 0, "but they are no workers"
    await claim.complete()


# -- a consumer whose process is gone


@pytest.fixture
def all_are_gone(monkeypatch):
    """Every process that is identified counts as gone, at every look."""
    monkeypatch.setattr("holdfast.client.session.is_gone", lambda pid, identity, clock: bool(identity))
    monkeypatch.setattr("holdfast.client.session.ABANDONED_EVERY", 0.0)


async def test_the_claim_of_a_process_that_is_gone_is_lost_before_its_lease_ends(app, all_are_gone):
    handle = await app.submit("resize", b"raw")
    [claim] = await app.claim(lease=3600.0)
    [again] = await app.claim()
    assert (again.job.id, again.fence) == (claim.job.id, 2)
    with pytest.raises(LeaseLost):
        await claim.complete()
    assert (await handle.job()).history[0].outcome == "lost"


async def test_a_claim_on_which_another_process_works_is_left_to_its_lease(app, claim, all_are_gone):
    await claim.started(os.getpid() + 1)
    assert await app.bulk.recover() == 0
    await claim.complete()


async def test_the_claims_of_a_supervised_worker_are_left_to_its_supervisor(app, all_are_gone):
    begun, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        begun.set()
        await gate.wait()

    handle = await work.enqueue()
    working = asyncio.create_task(work_off(app, supervised=True))
    await asyncio.wait_for(begun.wait(), 90)
    assert await app.bulk.recover() == 0
    gate.set()
    await working
    assert (await handle.job()).fence == 1


async def test_a_process_that_is_gone_is_looked_for_every_few_seconds_only(app, monkeypatch):
    looks = []
    monkeypatch.setattr("holdfast.client.session.is_gone", lambda *process: looks.append(process))
    await app.submit("resize", b"raw")
    await app.claim()
    session_of(app)._abandoned_at = 0.0
    for _ in range(5):
        await app.bulk.recover()
    assert len(looks) == 1
