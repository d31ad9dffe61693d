"""A graceful stop: accepted requests finish, streams and waiting claims end, no job is lost."""

from __future__ import annotations

import asyncio

import aiohttp

from holdfast import Holdfast
from holdfast.app import parts_of
from support.eventually import eventually
from support.http import Client, served, serving


async def test_a_stop_finishes_requests_and_ends_waiting_claims(app, monkeypatch):
    async with serving(app) as client:
        waiting = asyncio.create_task(client("POST", "/v1/claims", {"wait": 60}))
        await eventually(lambda: client.service.waiting == 1)
        entered, go = asyncio.Event(), asyncio.Event()
        real = parts_of(app).enqueue.insert_all

        async def slowly(*given):
            entered.set()
            await go.wait()
            return await real(*given)

        monkeypatch.setattr(parts_of(app).enqueue, "insert_all", slowly)
        submitting = asyncio.create_task(client.submit("t", key="k"))
        await entered.wait()
        client.server.should_exit = True
        assert (await asyncio.wait_for(waiting, 90)).json == {"claims": []}
        go.set()
        assert (await asyncio.wait_for(submitting, 90)).status == 201
    assert (await app.stats()).counts["queued"] == 1


async def test_the_command_exits_with_0_and_keeps_accepted_jobs(tmp_path, session):
    url = f"sqlite:///{tmp_path}/jobs.db"
    accepted: list[str] = []
    with served(tmp_path, url) as process:
        client = Client(process.address(), session)

        async def submit() -> None:
            while True:
                try:
                    reply = await client.submit("t")
                except aiohttp.ClientError:
                    return
                assert reply.status == 201
                accepted.append(reply.json["id"])

        submitting = [asyncio.create_task(submit()) for _ in range(8)]
        watching = asyncio.create_task(client("GET", "/v1/events"))
        await eventually(lambda: len(accepted) > 50, 20)
        assert await asyncio.to_thread(process.stop) == 0, process.output()
        await asyncio.gather(*submitting)
        assert (await watching).status == 200
        assert "Traceback" not in process.output()
    async with Holdfast(url) as app:
        for id in accepted:
            assert (await app.job(id)).state == "queued"
        assert len({*accepted}) == len(accepted)


async def test_several_server_processes_share_a_store(tmp_path, session):
    url = f"sqlite:///{tmp_path}/jobs.db"
    with served(tmp_path, url) as one, served(tmp_path, url) as other:
        clients = [Client(one.address(), session), Client(other.address(), session)]
        replies = await asyncio.gather(*(clients[n % 2].submit("t", {"a": 1}, "one") for n in range(50)))
        assert sorted(reply.status for reply in replies) == [200] * 49 + [201]
        ids = {reply.json["id"] for reply in replies}
        assert len(ids) == 1
        assert (await clients[0]("GET", f"/v1/jobs/{ids.pop()}")).status == 200
        assert {one.stop(), other.stop()} == {0}
