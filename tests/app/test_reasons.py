"""`app.explain()` without an id: why the jobs of a queue or of the store wait, in parts that add up."""

import asyncio
from collections import Counter

import pytest

from holdfast import Backoff, Context, Flow, InvalidJob, limit
from holdfast.client import reasons
from holdfast.client.explain import Explanation
from holdfast.client.reasons import Waits, summary
from holdfast.core.operations import Holder, HolderInfo, QueueStats
from support.eventually import eventually
from support.workers import work_off, working


def texts(found):
    assert sum(part.count for part in found.parts) == found.waiting
    return [(part.kind, part.text) for part in found.parts]


async def test_every_reason_is_a_part_with_its_count_and_action(app):
    @app.task
    async def plain(n: int) -> None: ...

    @app.task(queue="alone")
    async def unserved() -> None: ...

    @app.task(queue="work", limit=limit(concurrency=1))
    async def limited(n: int) -> None:
        await asyncio.sleep(60)

    @app.task(queue="work")
    async def approved(ctx: Context) -> None:
        await ctx.wait_for("approval 42")

    @app.task(queue="work")
    async def reminded(ctx: Context) -> None:
        await ctx.wait_for("approval 42", timeout=600)

    @app.task(queue="work", retry=Backoff(base=600, factor=1, jitter=0))
    async def fails() -> None:
        raise ValueError("no")

    assert (await app.explain()).reason == "no job waits"
    await app.pause(task="plain", where={"n": 7})
    for n in (7, 7):
        await plain.enqueue(n)
    await work_off(app, queues=["default"])
    flow = Flow("two")
    first = flow.add(unserved)
    flow.add(plain, 1).after(first)
    await app.enqueue_flow(flow)
    await approved.enqueue()
    await reminded.enqueue()
    await fails.enqueue()
    await plain.using(delay=600).enqueue(1)
    await plain.using(queue="held").enqueue(1)
    await app.pause("held")
    async with working(app, queues=["work"], concurrency=5):
        await app.enqueue_many([(limited, n) for n in range(4)])

        async def settled():
            counts = (await app.stats()).counts
            return (counts["blocked"], counts["scheduled"], counts["failed"]) == (8, 2, 1)

        await eventually(settled)
        found, of_queue = await app.explain(), await app.explain(queue="work")
    assert texts(found) == [
        ("no_worker", "1 in queue 'alone', which no live worker serves"),
        ("queue_paused", "1 in the paused queue 'held'"),
        ("task_paused", "2 for paused task 'plain where n=7'"),
        ("limit", "3 for limit 'limited'"),
        ("signal", "2 for signal 'approval 42'"),
        ("blocked", "1 for another job of their flow, a limit, a signal or a pause"),
        ("flow", "1 is a flow whose jobs have not ended"),
        ("retry", "1 for a retry after a failure"),
        ("scheduled", "1 for their due time"),
    ]
    assert (found.queue, found.waiting, found.running) == (None, 13, 1)
    assert found.reason.startswith("13 jobs wait: 1 in queue 'alone', which no live worker serves; 1 in the paused")
    assert [part.action for part in found.parts[:5]] == [
        "start a worker for it: `holdfast worker start --queues alone`",
        "`holdfast resume held` resumes it",
        "`holdfast resume --task plain --where n=7` resumes the task",
        "they start as running jobs end or the rate allows; raise the limit in the code to run more",
        "`holdfast signal 'approval 42'` wakes its jobs",
    ]
    assert [part.kind for part in of_queue.parts] == ["limit", "signal", "retry"]
    assert of_queue.queue == "work"


async def test_one_job_a_queue_or_the_store(app):
    job = await app.submit("any", b"")
    assert isinstance(await app.explain(job.id), Explanation)
    assert (await app.explain(queue="default")).reason == (
        "1 job waits: 1 in queue 'default', which no live worker serves"
    )
    with pytest.raises(InvalidJob, match="a job's id or queue=, not both"):
        await app.explain(job.id, queue="default")
    with pytest.raises(InvalidJob, match="queue 'none' has no job and no worker"):
        await app.explain(queue="none")
    with pytest.raises(InvalidJob):
        await app.explain(queue="")


def test_blocking_code_asks_the_same(make_app):
    app = make_app()
    job = app.sync.submit("any", b"")
    assert app.sync.explain(job.id).state == "queued"
    assert app.sync.explain(queue="default").waiting == 1


async def test_a_refused_job_waits_for_another_worker(app, make_app):
    app.task(lambda: None, name="known")
    await app.submit("new", b"{}", json=True)
    await work_off(app, queues=["default"])
    [part] = (await app.explain()).parts
    assert (part.kind, part.text) == ("refused", "1 for a worker that knows task 'new'")


async def test_counting_stops_and_says_so(app, monkeypatch):
    @app.task
    async def plain() -> None: ...

    await app.pause(task="plain")
    await app.enqueue_many([plain.call() for _ in range(7)])
    await work_off(app)
    monkeypatch.setattr(reasons, "LOOKUP", 5)
    found = await app.explain()
    assert texts(found) == [
        ("task_paused", "at least 5 for paused task 'plain'"),
        ("blocked", "2 for another job of their flow, a limit, a signal or a pause"),
    ]
    assert [part.exact for part in found.parts] == [False, True]


def test_many_queues_are_one_part():
    queues = [QueueStats(f"q{n:04}", {"queued": 450}) for n in range(1000)]
    queues += [QueueStats("busy", {"queued": 3, "running": 2}), QueueStats("free", {"queued": 4})]
    queues.append(QueueStats("b", {"blocked": 251}))
    workers = [
        HolderInfo(Holder("a", 9, queues=("busy",), slots=2), 1, 0, True, ("x", "y")),
        HolderInfo(Holder("b", 9, queues=("free", "busy"), slots=2), 1, 0, False, ()),  # its lease has expired
        HolderInfo(Holder("c", 9, queues=("free",), slots=2), 1, 0, True, ("z",)),
    ]
    found = summary(queues, workers, Waits(paused=Counter(send=200), limits=Counter(a=50, b=1)))
    assert found.reason == (
        "450,258 jobs wait: 450,000 in 1,000 queues that no live worker serves (q0000, q0001, q0002, …);"
        " 3 in queue 'busy', whose workers are all busy; 4 for the next free worker in queue 'free';"
        " 200 for paused task 'send'; 51 for 2 limits (a, b)"
    )
    assert found.parts[0].total == 1000
