"""Keys and unique jobs inside the user's own transaction, and at once in many."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from holdfast import Holdfast, KeyConflict
from holdfast.app import parts_of
from support.connections import pairs
from support.inside import session_of


@pytest.mark.parametrize("pair", pairs("Postgres", is_async=True))
async def test_the_same_key_gives_the_same_job_and_another_payload_an_error(server, app, pair):
    first = await app.add.using(key="k").enqueue(1, 2)
    async with pair.open(server.url) as mine:
        again = await app.add.using(connection=mine.connection, key="k").enqueue(1, 2)
        with pytest.raises(KeyConflict):
            await app.add.using(connection=mine.connection, key="k").enqueue(3, 4)
        await mine.commit()
    assert again.id == first.id


@pytest.mark.parametrize("pair", pairs("Postgres", is_async=True))
@pytest.mark.parametrize("unique", ["until_end", "until_start", 60])
async def test_a_unique_job_can_be_enqueued_in_a_transaction(server, app, pair, unique):
    first = await app.add.using(unique=unique).enqueue(1, 2)
    async with pair.open(server.url) as mine:
        again = await app.add.using(connection=mine.connection, unique=unique).enqueue(1, 2)
        other = await app.add.using(connection=mine.connection, unique=unique).enqueue(3, 4)
        await mine.commit()
    assert (again.id, (await other.job()).id) == (first.id, other.id)


async def test_fifty_submissions_of_one_key_make_one_job(url):
    apps = [Holdfast(url) for _ in range(5)]
    for app in apps:
        app.task(name="work")(lambda: None)
    try:
        handles = await asyncio.gather(
            *(apps[n % 5].enqueue(parts_of(apps[n % 5]).registry.tasks["work"].using(key="one")) for n in range(50))
        )
        assert len({handle.id for handle in handles}) == 1
        assert len((await apps[0].jobs()).jobs) == 1
    finally:
        for app in apps:
            await app.close()


async def test_fifty_submissions_while_the_winner_rolls_back_still_make_one_job(server, app):
    connection = await asyncpg.connect(server.url)
    transaction = connection.transaction()
    await transaction.start()
    winner = await app.add.using(connection=connection, key="one").enqueue(1, 2)
    others = [Holdfast(session_of(app).store.sibling()) for _ in range(5)]
    for each in others:
        each.add = each.task(name="add")(lambda a, b: a + b)
    waiting = [asyncio.create_task(others[n % 5].add.using(key="one").enqueue(1, 2)) for n in range(49)]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in waiting)
    await transaction.rollback()
    handles = await asyncio.gather(*waiting)
    [only] = (await app.jobs()).jobs
    assert {handle.id for handle in handles} == {only.id} != {winner.id}
    await connection.close()
    for each in others:
        await each.close()
