"""What a page of jobs reads, so that it takes as long with a million jobs as with a hundred."""

import re

import pytest

from holdfast import Holdfast
from holdfast.client.search import WINDOW, Filter
from holdfast.core.operations import Where
from holdfast.store.redis import store as redis_store
from holdfast.testing.build import dead, deletion, new_job, retrial
from holdfast.testing.verbs import apply, claim, insert, settle


@pytest.fixture
def alone(start_server):
    """A server whose counts of commands no other test changes."""
    return start_server()


def reads(server) -> int:
    """Jobs that scripts have read."""
    found = re.search(rb"cmdstat_hmget:calls=(\d+)", server.call("INFO", "commandstats"))
    return 0 if found is None else int(found[1])


async def die(store, queue: str, count: int) -> None:
    await insert(store, *(new_job(queue=queue) for _ in range(count)))
    for record in await claim(store, "ann", queue, limit=count):
        assert await settle(store, dead(record))


async def test_a_page_of_the_dead_jobs_of_a_queue_reads_no_other_job(alone, open_at):
    store = await open_at(alone.url("pages"))
    await die(store, "few", 3)
    await die(store, "many", 40)
    await insert(store, *(new_job(queue="few") for _ in range(20)))
    where = Where(("dead",), queue="few")
    before = reads(alone)
    page = await store.find(where, None, 10)
    assert (len(page.records), page.cursor) == (3, None)
    assert reads(alone) - before == 3, "each job is read once"
    first = await store.find(where, None, 2)
    assert [len(first.records), len((await store.find(where, first.cursor, 2)).records)] == [2, 1]


async def test_the_pages_of_many_dead_jobs_have_each_job_once_newest_first(alone, open_at):
    store = await open_at(alone.url("pages"))
    await die(store, "many", 300)
    found, cursor = [], None
    for size in (100, 150, 50):
        before = reads(alone)
        page = await store.find(Where(("dead",)), cursor, size)
        assert reads(alone) - before <= size + 1, "it stops where the page is full"
        assert len(page.records) == size
        found, cursor = [*found, *page.records], page.cursor
    assert cursor is None
    assert [record.seq for record in found] == sorted({record.seq for record in found}, reverse=True)


async def test_retried_and_deleted_jobs_leave_the_page_of_their_queue(alone, open_at):
    store = await open_at(alone.url("pages"))
    await die(store, "few", 3)
    where = Where(("dead", "cancelled"), queue="few")
    one, other, last = (await store.find(where, None, 10)).records
    await apply(store, retrial(one))
    await apply(store, deletion(other))
    assert [record.id for record in (await store.find(where, None, 10)).records] == [last.id]


async def test_a_search_of_a_queue_stops_and_says_how_far_it_has_looked(monkeypatch, url, open_at):
    monkeypatch.setattr(redis_store, "MAX_READ", 2000)
    store = await open_at(url)
    await insert(store, *(new_job(queue="old") for _ in range(3)))
    for _ in range(12):
        await insert(store, *(new_job(queue="new") for _ in range(1000)))
    async with Holdfast(store) as app:
        wanted, steps = Filter(queue="old"), []
        page = await app.bulk.search(wanted)
        while page.cursor is not None:
            steps.append((len(page.jobs), page.looked))
            page = await app.bulk.search(wanted, cursor=page.cursor)
        assert steps
        assert all(found == 0 and looked >= WINDOW for found, looked in steps)
        assert len(page.jobs) == 3
        assert len((await app.jobs(queue="old", limit=2)).jobs) == 2, "a page of the API is full"
        assert await app.bulk.purge(state="queued", queue="old") == 3
