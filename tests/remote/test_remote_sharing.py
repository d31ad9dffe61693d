"""What a server does for many clients at once: batches share commits, and it alone sweeps."""

import asyncio

from holdfast import Holdfast
from holdfast.core.job import State
from holdfast.store.protocol import Batch
from holdfast.testing.build import holder, new_job, succeeded
from holdfast.testing.verbs import claim, every, insert, running
from support.eventually import eventually
from support.inside import session_of
from support.workers import working


async def test_the_batches_of_many_clients_share_commits(serving, open_at):
    behind = session_of(serving.app).store
    writes = 0
    through = behind.write

    async def counted(batch):
        nonlocal writes
        writes += 1
        return await through(batch)

    behind.write = counted
    stores = [await open_at(serving.url) for _ in range(8)]
    await asyncio.gather(*(insert(store, new_job(f"{n}/{k}")) for k in range(25) for n, store in enumerate(stores)))
    assert serving.calls.count("write") == 200
    assert writes < 100
    assert len(await every(stores[0], page=300)) == 200


async def test_every_client_gets_its_own_answers(serving, open_at):
    stores = [await open_at(serving.url) for _ in range(6)]

    async def live(store, name):
        for n in range(10):
            answers = await store.write(Batch(inserts=[new_job(f"{name}/{n}/{k}", queue=name) for k in range(3)]))
            assert [one.id for one in answers.inserts] == [f"{name}/{n}/{k}" for k in range(3)]
            records = await claim(store, name, name, limit=9)
            assert [record.queue for record in records] == [name] * 3
            answers = await store.write(Batch(settles=[succeeded(record) for record in records]))
            assert list(answers.settles) == [True] * 3

    await asyncio.gather(*(live(store, f"client-{n}") for n, store in enumerate(stores)))


async def test_the_server_sweeps_and_workers_leave_it_to_it(serve, open_at):
    server = await serve(sweeps=True)
    store = await open_at(server.url)
    lost = await running(store, by=holder("gone", 0.3))
    app = Holdfast(server.url, poll=0.05)

    @app.task(name=lost.task)
    async def work(**_: object) -> None: ...

    async with app, working(app):
        await eventually(lambda: _ended(store, lost.id), limit=15.0)
    assert "expired" not in server.calls
    assert "tidy" not in server.calls


async def _ended(store, id) -> bool:
    [record] = await store.get([id])
    return record.state in (State.SUCCEEDED, State.DEAD, State.FAILED)


async def test_a_manual_claim_leaves_sweeping_to_the_server(serve):
    server = await serve(sweeps=True)
    async with Holdfast(server.url) as app:
        assert await app.claim() == []
        assert await app.bulk.recover() == 0  # on demand it is still done
    assert server.calls.count("expired") == 1


async def test_a_server_that_does_not_sweep_leaves_it_to_the_workers(serving):
    async with Holdfast(serving.url) as app:
        assert await app.claim() == []
    assert serving.calls.count("expired") == 1
