"""The stream of a job over HTTP: several readers get the same, one that reconnects too."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from holdfast import Context, Holdfast
from holdfast.app import parts_of
from holdfast.http import sse, tokens
from support.eventually import eventually
from support.http import Client, Served, serving
from support.workers import work_off, working


class Reader:
    """Reads the stream of a job, and reconnects after `drops` chunks, as browsers do."""

    def __init__(self, http: Client, id: str, drops: int = 0) -> None:
        self.http = http
        self.id = id
        self.drops = drops
        self.chunks: list[dict] = []
        self.connections = 0
        self.end: dict | None = None

    @asynccontextmanager
    async def connected(self, query: str = ""):
        headers = {"Last-Event-ID": str(self.chunks[-1]["position"])} if self.chunks else {}
        self.connections += 1
        url = f"{self.http.url}/v1/jobs/{self.id}/stream{query}"
        async with self.http.session.get(url, headers=headers, timeout=None) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            yield self._events(answer)

    async def _events(self, answer):
        name, id, data = "", "", None
        async for line in answer.content:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "id":
                id = value
            elif field == "data":
                data = json.loads(value)
            elif not field and name:
                if name == "chunk":
                    assert id == str(data["position"])
                yield name, data
                name = ""

    async def read(self, query: str = "") -> list:
        """The values of all chunks, until the job has ended."""
        while self.end is None:
            async with self.connected(query) as events:
                async for name, data in events:
                    if name == "end":
                        self.end = data
                        break
                    self.chunks.append(data)
                    if self.drops and len(self.chunks) % self.drops == 0:
                        break
                else:
                    raise AssertionError("the stream ended without its last event")
        return [chunk["value"] for chunk in self.chunks]


def counting(app: Holdfast):
    @app.task
    async def count(ctx: Context, number: int, pause: float) -> None:
        begun = asyncio.get_running_loop().time()
        for n in range(number):
            await ctx.emit({"n": n, "text": "a\nb"})
            await asyncio.sleep(begun + (n + 1) * pause - asyncio.get_running_loop().time())

    return count


def expected(number: int) -> list:
    return [{"n": n, "text": "a\nb"} for n in range(number)]


async def test_three_readers_of_which_one_reconnects_get_the_same(http, app):
    count = counting(app)
    handle = await count.enqueue(200, 0.001)
    readers = [Reader(http, handle.id), Reader(http, handle.id), Reader(http, handle.id, drops=60)]
    reading = asyncio.gather(*(reader.read() for reader in readers))
    async with working(app):
        assert await asyncio.wait_for(reading, 60) == [expected(200)] * 3
    assert readers[0].chunks == readers[1].chunks == readers[2].chunks
    assert [reader.connections for reader in readers] == [1, 1, 4]
    assert [reader.end for reader in readers] == [{"status": "succeeded"}] * 3
    late = Reader(http, handle.id)
    assert await late.read() == expected(200)
    await eventually(lambda: http.service.streams == 0)


@pytest.mark.extended
@pytest.mark.timeout(180)
async def test_2000_chunks_at_50_a_second_from_another_process(app, app_url, tmp_path, session):
    count = counting(app)
    handle = await count.enqueue(2000, 0.02)
    served = await asyncio.to_thread(Served, tmp_path, app_url)
    try:
        http = Client(await asyncio.to_thread(served.address), session)
        readers = [Reader(http, handle.id), Reader(http, handle.id), Reader(http, handle.id, drops=300)]
        reading = asyncio.gather(*(reader.read() for reader in readers))
        async with working(app):
            assert await asyncio.wait_for(reading, 150) == [expected(2000)] * 3
        assert readers[0].chunks == readers[1].chunks == readers[2].chunks
    finally:
        await asyncio.to_thread(served.kill)


async def test_a_reader_sees_the_attempts_and_continues_at_a_position(http, app):
    @app.task(max_attempts=2, retry=lambda *_: 0.0)
    async def again(ctx: Context) -> None:
        await ctx.emit(ctx.attempt)
        await ctx.emit("<script>")
        raise ValueError

    handle = await again.enqueue()
    async with working(app):
        await handle.wait(timeout=30)
    reader = Reader(http, handle.id)
    await reader.read()
    assert [(one["attempt"], one["value"], one["first"], one["missed"]) for one in reader.chunks] == [
        (1, 1, True, 0), (1, "<script>", False, 0), (2, 2, True, 0), (2, "<script>", False, 0),
    ]  # fmt: skip
    assert reader.end == {"status": "dead"}
    half = Reader(http, handle.id)
    await half.read(f"?position={reader.chunks[1]['position']}")
    assert half.chunks == reader.chunks[2:]


async def test_mistakes_are_answered_before_the_stream_begins(http, app):
    @app.task
    async def speak(ctx: Context) -> None:
        await ctx.emit("abc")

    handle = await speak.enqueue()
    await work_off(app)
    path = f"/v1/jobs/{handle.id}/stream"
    unknown = f"/v1/jobs/{handle.id[:-4]}0000/stream"
    for query in ("", "?position=3"):
        assert (await http("GET", unknown + query)).problem == "job-not-found"
    for query in ("?position=-1", "?position=x", "?other=1", "?position=2"):
        assert (await http("GET", path + query)).status == 422, query
    for last in ("x", "-1", "1" * 30, "2"):
        assert (await http("GET", path, Last_Event_ID=last)).status == 422, last
    assert (await http("HEAD", path)).status == 405
    assert http.service.streams == 0


async def test_a_stream_ends_with_its_token_and_respects_its_scope(app, monkeypatch):
    monkeypatch.setattr(sse, "COMMENT_EVERY", 0.05)
    monkeypatch.setattr(tokens, "TOKENS_MAX_AGE", 0.05)
    count = counting(app)
    handle = await count.enqueue(1, 0.0)
    token = await tokens.create(parts_of(app).records, ["read"])
    other = await tokens.create(parts_of(app).records, ["read"], queues=["mail"])
    async with serving(app) as http:
        http.session.headers["Authorization"] = f"Bearer {other}"
        assert (await http("GET", f"/v1/jobs/{handle.id}/stream", token=other)).problem == "job-not-found"
        http.session.headers["Authorization"] = f"Bearer {token}"
        async with Reader(http, handle.id).connected() as events:
            await tokens.revoke(parts_of(app).records, token.split("_")[1])
            assert [event async for event in events] == []
        await eventually(lambda: http.service.streams == 0)


async def test_a_job_that_is_removed_at_its_end(http, app):
    @app.task(retention=0)
    async def count(ctx: Context) -> None:
        await ctx.emit(1)

    handle = await count.enqueue()
    reader = Reader(http, handle.id)
    reading = asyncio.ensure_future(reader.read())
    await eventually(lambda: http.service.streams == 1)
    await work_off(app)
    await asyncio.wait_for(reading, 30)
    assert reader.end == {"status": "removed"}
