"""What a page of jobs reads, so that it takes as long with a million jobs as with a hundred."""

import re

import pytest

from holdfast.core.operations import Where
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
    assert reads(alone) - before <= 2 * 3
    first = await store.find(where, None, 2)
    assert [len(first.records), len((await store.find(where, first.cursor, 2)).records)] == [2, 1]


async def test_retried_and_deleted_jobs_leave_the_page_of_their_queue(alone, open_at):
    store = await open_at(alone.url("pages"))
    await die(store, "few", 3)
    where = Where(("dead", "cancelled"), queue="few")
    one, other, last = (await store.find(where, None, 10)).records
    await apply(store, retrial(one))
    await apply(store, deletion(other))
    assert [record.id for record in (await store.find(where, None, 10)).records] == [last.id]
