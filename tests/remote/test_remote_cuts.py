"""Lost requests and answers: every write is made once, and every caller knows its outcome."""

import asyncio
from collections import Counter

import pytest
from cutter import Cutter

from holdfast import Holdfast
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.core.job import TERMINAL
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, holder, new_job, succeeded, swept
from holdfast.testing.verbs import claim, claim_one, every, insert, job
from support.eventually import eventually
from support.late_claims import run_with_a_late_claim
from support.workers import working

JOBS = 60


async def test_the_lost_answer_of_a_write_is_queried(serving, open_at):
    async with Cutter(serving.port) as line:
        store = await open_at(line.url)
        await insert(store, new_job("a"), new_job("b"))
        line.lose_next(after=True)
        [record] = await claim(store)
        assert record.id == "a"
        assert (await job(store, "a")).fence == record.fence == 1
        assert [one.id for one in await claim(store)] == ["b"]
        assert serving.calls.count("write") == 3
        assert line.seen["recall"] == 1


async def test_the_lost_answer_of_a_compare_and_set_is_queried(serving, open_at):
    async with Cutter(serving.port) as line:
        store = await open_at(line.url)
        line.lose_next(after=True)
        assert await store.put_record("config", "x", b"1", expect=0)
        line.lose_next(after=True)
        assert not await store.put_record("config", "x", b"2", expect=0)


async def test_a_write_that_never_arrived_is_unknown_and_may_be_sent_again(serving, open_at):
    async with Cutter(serving.port) as line:
        store = await open_at(line.url)
        line.lose_next(after=False)
        with pytest.raises(OutcomeUnknown):
            await insert(store, new_job("a"))
        assert await every(store) == []
        assert [answer.outcome for answer in await insert(store, new_job("a"))] == ["created"]


async def test_another_server_process_does_not_know_the_answer_and_a_repeat_is_recognised(serve, open_at):
    first, second = await serve(), await serve()
    async with Cutter(first.port) as line:
        store = await open_at(line.url)
        await insert(store, new_job("a"))
        end = succeeded(await claim_one(store))
        line.lose_next(after=True)
        line.elsewhere = second.port
        with pytest.raises(OutcomeUnknown):
            await store.write(Batch(settles=[end]))
        assert line.seen["recall"] == 1
        assert list((await store.write(Batch(settles=[end]))).settles) == [True]
        assert (await job(store, "a")).state == "succeeded"


async def test_a_read_is_made_again(serving, open_at):
    async with Cutter(serving.port, only=("get",)) as line:
        store = await open_at(line.url)
        await insert(store, new_job("a"))
        line.lose_next(after=True)
        assert (await job(store, "a")).id == "a"
        assert line.seen["get"] == 2


async def test_heartbeats_and_leaves_may_be_repeated(serving, open_at):
    async with Cutter(serving.port) as line:
        store = await open_at(line.url)
        line.lose_next(after=True)
        [heartbeat] = await store.heartbeat([holder("ann")])
        assert heartbeat.heartbeat >= 1
        line.lose_next(after=True)
        await store.leave(["ann"])
        assert await store.holders() == []


@pytest.mark.parametrize("after", [False, True], ids=["requests", "answers"])
async def test_an_app_and_its_worker_work_if_every_seventh_message_is_lost(serving, after):
    """Nothing is lost or done twice: a claim whose answer was lost is released by the next heartbeat, uncharged."""
    async with Cutter(serving.port, only=("write", "heartbeat", "recall"), after=after) as line:
        app = Holdfast(line.url, lease=1.5, poll=0.05)
        ran: Counter[int] = Counter()

        @app.task
        async def work(n: int) -> int:
            ran[n] += 1
            return n

        async with app:
            losing = asyncio.create_task(_lose_every(line, 7))
            async with working(app, concurrency=5):
                handles = [await _surely(work, n) for n in range(JOBS)]
                results = [await handle.result(timeout=30.0) for handle in handles]
            losing.cancel()
        assert results == list(range(JOBS))
        assert ran == Counter(range(JOBS))


async def _lose_every(line: Cutter, nth: int) -> None:
    while True:
        if line.lose_at is None or line.calls >= line.lose_at:
            line.lose_at = line.calls + nth
        await asyncio.sleep(0)


async def _surely(work, n):
    while True:
        try:
            return await work.using(key=f"key-{n}").enqueue(n)
        except (OutcomeUnknown, StoreUnavailable):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_whenever_a_client_dies_nothing_acknowledged_is_lost_and_nothing_ends_twice(
    serve, open_at, tmp_path, after
):
    at = 0
    while True:
        at += 1
        server = await serve(f"sqlite:///{tmp_path}/cut-{at}.db")
        async with Cutter(server.port, lose_at=at, after=after, forever=True) as line:
            store = await open_at(line.url)
            acknowledged: set[str] = set()
            finished: Counter[str] = Counter()
            try:
                await _live(store, acknowledged, finished)
            except (OutcomeUnknown, StoreUnavailable):
                died = True
            else:
                died = False
        await store.close()
        other = await open_at(server.url)
        await _take_over(other, finished)
        records = {record.id: record for record in await every(other)}
        assert acknowledged <= records.keys()
        assert {record.state for record in records.values()} <= TERMINAL
        assert max(finished.values(), default=1) == 1
        await other.close()
        if not died:
            break
    assert at > 10


async def _live(store, acknowledged, finished) -> None:
    me = holder("first", 0.2)
    for first in range(0, 30, 10):
        jobs = [new_job(f"{n}", key=f"key-{n}") for n in range(first, first + 10)]
        await store.write(Batch(inserts=jobs))
        acknowledged.update(one.id for one in jobs)
    ends = []
    while True:
        answers = await store.write(Batch(settles=ends, asks=[ask(me, limit=10)]))
        finished.update(end.id for end, written in zip(ends, answers.settles, strict=True) if written)
        if not (records := answers.asks[0].records):
            break
        ends = [succeeded(record) for record in records]
        await store.heartbeat([me])
    await store.leave(["first"])


async def _take_over(store, finished) -> None:
    """Another client: recovers the claims of the dead one, and finishes the rest."""

    async def done() -> bool:
        lost = await store.expired(100)
        await store.write(Batch(settles=[swept(one) for one in lost]))
        for record in await claim(store, "second", limit=100):
            answers = await store.write(Batch(settles=[succeeded(record)]))
            finished.update([record.id] if answers.settles[0] else [])
        return all(record.state in TERMINAL for record in await every(store))

    await eventually(done)


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "limited to one"])
async def test_a_job_whose_claim_is_answered_late_runs_once(serving, limited):
    async with Cutter(serving.port) as line:
        assert await run_with_a_late_claim(line.url, serving.url, line, limited=limited) == (["late"], "succeeded")
