"""The stream of a job over HTTP: several readers get the same, one that reconnects too."""

from __future__ import annotations

import asyncio

from holdfast import Context, StoreUnavailable
from holdfast.app import parts_of
from holdfast.core.operations import Output
from holdfast.http import sse, tokens
from support.eventually import eventually
from support.http import serving
from support.inside import session_of
from support.stream_readers import Reader, counting, expected
from support.workers import work_off, working


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


async def test_stored_chunks_are_read_without_waiting_for_the_end(http, app):
    go = asyncio.Event()

    @app.task
    async def speak(ctx: Context) -> None:
        await ctx.emit("one")
        await go.wait()

    handle = await speak.enqueue()
    path = f"/v1/jobs/{handle.id}/stream?follow=false"
    assert b"event:" not in (await http("GET", path)).content
    async with working(app):
        chunk = await anext(handle.stream())
        stored = (await http("GET", path)).content
        assert (stored.count(b"event: chunk"), b"event: end" in stored) == (1, False)
        assert b"event:" not in (await http("GET", f"{path}&position={chunk.position}")).content
        go.set()
        await handle.wait(timeout=30)
    assert b"event: end" not in (await http("GET", path)).content


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


async def test_a_stream_goes_on_after_an_outage_of_the_store(http, app, monkeypatch, caplog):
    monkeypatch.setattr(sse, "RETRY_EVERY", 0.01)
    await app.open()
    store, go_on, failed = session_of(app).store, asyncio.Event(), []
    output = store.output

    async def failing(*given, **options):
        if options.get("stream") and len(failed) < 5:
            failed.append(given)
            raise StoreUnavailable("gone")
        return await output(*given, **options)

    @app.task
    async def count(ctx: Context) -> None:
        for number in range(6):
            await ctx.emit(number)
            if number == 2:
                await go_on.wait()

    handle = await count.enqueue()
    reader = Reader(http, handle.id)
    async with working(app):
        reading = asyncio.ensure_future(reader.read())
        await eventually(lambda: len(reader.chunks) == 3)
        monkeypatch.setattr(store, "output", failing)
        go_on.set()
        assert await asyncio.wait_for(reading, 60) == list(range(6))
    assert len(failed) == 5
    assert [chunk["first"] for chunk in reader.chunks] == [True, *[False] * 5]
    assert (reader.connections, reader.end) == (1, {"status": "succeeded"})
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


async def test_a_stream_ends_before_a_damaged_chunk_and_the_next_connection_is_told(http, app, caplog):
    @app.task
    async def speak(ctx: Context) -> None:
        await ctx.say(output=Output(0, b'1\n{"a\n3\n', 100, stream=True))

    handle = await speak.enqueue()
    await work_off(app)
    reader = Reader(http, handle.id)
    async with reader.connected() as events:
        assert [data["value"] async for _, data in events] == [1]
    path = f"/v1/jobs/{handle.id}/stream"
    told = await http("GET", path, Last_Event_ID="2")
    assert (told.status, b"damaged" in told.content) == (422, True)
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


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
