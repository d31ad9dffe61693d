"""Limit keys under real concurrency: eight processes, fifty keys, and no key above its concurrency."""

import asyncio
import multiprocessing
from collections import Counter, defaultdict

import pytest
from key_census import strays
from test_redis_depth import calls

from holdfast.core.clock import SystemClock
from holdfast.core.job import LimitKey, State
from holdfast.core.operations import Where
from holdfast.core.waiting import Waiting
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, failed, new_job, released, succeeded
from holdfast.testing.verbs import claim, every, insert

PROCESSES, LIMIT_KEYS, JOBS, RUNNING = 8, 50, 3000, 2
ENDS = (succeeded, succeeded, succeeded, released, failed)


async def work(url: str, name: str, number: int) -> None:
    """Claim and settle until all jobs have ended; some are released, or fail once."""
    store = open_store(url, SystemClock())
    await store.open()
    listener = store.listen(["queue/default"])
    settles = []
    while True:
        answers = await store.write(Batch(settles=settles, asks=[ask(name, limit=1 + number % 4)]))
        records = answers.asks[0].records
        ends = [ENDS[(record.seq + number) % 5] if record.fence == 1 else succeeded for record in records]
        settles = [end(record) for end, record in zip(ends, records, strict=True)]
        if not records:
            [queue] = await store.stats()
            if queue.counts.keys() == {State.SUCCEEDED}:
                break
            await listener.wait(0.05)
    await store.close()


def process(url: str, number: int) -> None:
    asyncio.run(work(url, f"worker-{number}", number))


async def look(store) -> Counter:
    """The number of running jobs of each limit key, read atomically."""
    page = await store.find(Where(states=(State.RUNNING,)), None, 1000)
    assert page.cursor is None
    return Counter(record.limit_key.name for record in page.records)


def most_at_once(records) -> dict[str, int]:
    """The most claims of each limit key that overlapped, by the times of every claim that was ever made."""
    steps = defaultdict(list)
    for record in records:
        claims = [(line.started_at, line.ended_at) for line in record.history]
        for start, end in [*claims, (record.started_at, record.finished_at)]:
            steps[record.limit_key.name] += [(start, 1), (end, -1)]
    most = {}
    for limit_key, times in steps.items():
        now = most[limit_key] = 0
        for _, step in sorted(times):  # within one step of the server, what ends goes first
            now += step
            most[limit_key] = max(most[limit_key], now)
    return most


@pytest.mark.extended
async def test_eight_processes_never_run_more_of_a_limit_key_than_it_allows(store, server, url):
    limit_keys = [LimitKey(f"limit_key-{n}", concurrency=RUNNING) for n in range(LIMIT_KEYS)]
    for first in range(0, JOBS, 500):
        await insert(store, *(new_job(limit_key=limit_keys[n * n % LIMIT_KEYS]) for n in range(first, first + 500)))
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=process, args=(url, number)) for number in range(PROCESSES)]
    for worker in workers:
        worker.start()
    looks = 0
    try:
        while any(worker.is_alive() for worker in workers):
            running = await look(store)
            looks += bool(running)
            assert all(number <= RUNNING for number in running.values()), running
            assert {worker.exitcode for worker in workers} <= {None, 0}
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    records = await every(store, page=1000)
    assert len(records) == JOBS
    assert {record.state for record in records} == {State.SUCCEEDED}
    assert looks > 10
    most = most_at_once(records)
    assert max(most.values()) == RUNNING
    assert await strays(store, server) == []


async def cost(store, server) -> int:
    """The commands that one claim makes inside the server."""
    server.call("CONFIG", "RESETSTAT")
    assert len(await claim(store, limit=10)) == 10
    return sum(calls(server).values())


async def test_the_cost_of_a_claim_does_not_depend_on_deferred_jobs(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none"))

    async def hold(limit_keys: range, jobs: int) -> None:
        for n in limit_keys:
            await insert(
                store, *(new_job(limit_key=LimitKey(f"l{n}", concurrency=1), priority=-1) for _ in range(jobs))
            )
        while (await store.write(Batch(asks=[ask(limit=1000)]))).asks[0].records:
            pass

    await hold(range(2), 10)
    await insert(store, *(new_job() for _ in range(100)))
    await cost(store, server)
    few = await cost(store, server)
    await claim(store, limit=100)
    await hold(range(2, 200), 20)
    await insert(store, *(new_job() for _ in range(100)))
    await cost(store, server)
    assert await cost(store, server) <= few + 2
    held = await every(store, Where(waiting_for=Waiting("limit", "l7")))
    assert len(held) == 19


async def test_more_deferred_jobs_than_are_sorted_at_once_are_listed_newest_first(store):
    for first in range(0, 6000, 1000):
        await insert(
            store, *(new_job(f"j{n}", limit_key=LimitKey("l", concurrency=1)) for n in range(first, first + 1000))
        )
    await insert(store, new_job("last"))
    while "last" not in [record.id for record in await claim(store, limit=2)]:
        pass
    page = await store.find(Where(waiting_for=Waiting("limit", "l")), None, 3)
    assert [record.id for record in page.records] == ["j5999", "j5998", "j5997"]
    assert len(await every(store, Where(waiting_for=Waiting("limit", "l")), page=1000)) == 5999


async def test_a_hundred_limit_keys_cost_as_many_commands_as_one(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none"))

    async def commands(batch: Batch) -> tuple[int, list]:
        server.call("CONFIG", "RESETSTAT")
        answers = await store.write(batch)
        return sum(calls(server).values()), answers.asks[0].records if batch.asks else []

    async def live(limit_keys: int) -> list[int]:
        kinds = ({"concurrency": 100}, {"interval": 1, "burst": 100}, {"concurrency": 100, "weight": 1})
        costs = []
        for kind in kinds:
            jobs = [new_job(limit_key=LimitKey(f"{limit_keys}-{n % limit_keys}", **kind)) for n in range(100)]
            made, _ = await commands(Batch(inserts=jobs))
            claimed, records = await commands(Batch(asks=[ask(limit=100)]))
            assert len(records) == 100
            ended, _ = await commands(Batch(settles=[succeeded(record) for record in records]))
            costs += [made - len(jobs), claimed, ended]
        return costs

    await live(1)  # what the first batch writes besides: the holder, and the script
    few, some = await live(2), await live(100)
    assert all(one <= other + 4 for one, other in zip(some, few, strict=True)), (few, some)


async def test_jobs_of_one_batch_get_the_positions_of_single_inserts(store):
    limit_keys = [LimitKey("a", weight=1), LimitKey("b", weight=3), LimitKey("c", weight=100)]
    jobs = [(n, limit_keys[n * n % 7 % 3]) for n in range(40)]
    await insert(store, *(new_job(f"{n} together", queue="together", limit_key=limit_key) for n, limit_key in jobs))
    for n, limit_key in jobs:
        other = LimitKey(f"other {limit_key.name}", weight=limit_key.weight)
        await insert(store, new_job(f"{n} alone", queue="one by one", limit_key=other))
    order = [record.id.split()[0] for record in await claim(store, "ann", "together", limit=99)]
    assert len(order) == 40
    assert order != sorted(order, key=int)
    assert order == [record.id.split()[0] for record in await claim(store, "ann", "one by one", limit=99)]
