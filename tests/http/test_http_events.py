"""Server-sent events: live transitions, and resuming an interrupted stream."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from holdfast.app import parts_of
from holdfast.http import sse, tokens
from support.eventually import eventually
from support.http import serving


class Stream:
    def __init__(self, answer) -> None:
        self.answer = answer
        self.last: str | None = None

    async def next(self, limit: float = 30.0) -> tuple[str, dict]:
        """Name and data of the next event."""
        name, data = "message", None
        async with asyncio.timeout(limit):
            async for line in self.answer.content:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data = json.loads(value)
                elif field == "id":
                    self.last = value
                elif not field and data is not None:
                    return name, data
        raise EOFError

    async def jobs(self, count: int) -> list[tuple[str, str]]:
        """The next `count` transitions, as (id, status)."""
        found = []
        while len(found) < count:
            name, data = await self.next()
            if name == "job":
                found.append((data["id"], data["status"]))
        return found


@asynccontextmanager
async def stream(http, last: str | None = None):
    headers = {} if last is None else {"Last-Event-ID": last}
    async with http.session.get(f"{http.url}/v1/events", headers=headers) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield Stream(answer)


async def test_transitions_are_streamed_live(http, app):
    async with stream(http) as received:
        await received.next()  # the first cursor
        id = (await http.submit("t", max_attempts=2)).json["id"]
        [claim] = await app.claim()
        await claim.fail("no", retry_in=0)
        [claim] = await app.claim()
        await claim.complete(1)
        await app.delete(id)
        words = ["queued", "running", "queued", "running", "succeeded", "deleted"]  # a retry without delay is queued
        assert await received.jobs(6) == [(id, word) for word in words]
    await eventually(lambda: http.service.streams == 0)


async def test_a_stream_resumes_from_last_event_id(http):
    async with stream(http) as received:
        await received.next()
        first = (await http.submit("t")).json["id"]
        assert await received.jobs(1) == [(first, "queued")]
        last = received.last
    missed = [(await http.submit("t")).json["id"] for _ in range(3)]
    async with stream(http, last) as received:
        assert await received.jobs(3) == [(id, "queued") for id in missed]


async def test_another_server_resumes_a_stream(http, make_app):
    async with stream(http) as received:
        await received.next()
        last = received.last
    id = (await http.submit("t")).json["id"]
    async with serving(make_app()) as other, stream(other, last) as received:
        assert await received.jobs(1) == [(id, "queued")]


async def test_many_streams_get_the_same_events(http):
    async def watch(ready):
        async with stream(http) as received:
            await received.next()
            ready.set()
            return await received.jobs(2)

    ready = [asyncio.Event() for _ in range(10)]
    watching = [asyncio.create_task(watch(one)) for one in ready]
    await asyncio.gather(*(one.wait() for one in ready))
    ids = [(await http.submit("t")).json["id"] for _ in range(2)]
    assert await asyncio.gather(*watching) == [[(id, "queued") for id in ids]] * 10


async def test_missed_transitions_send_a_reset(http, app, monkeypatch):
    real = app.timeseries.transitions

    async def long_ago(since=None, limit=1000):
        answer = await real(None, limit)
        return type(answer)([], answer.cursor, missed=since is not None)

    async with stream(http) as received:
        await received.next()
        last = received.last
    monkeypatch.setattr(app.timeseries, "transitions", long_ago)
    async with stream(http, last) as received:
        assert await received.next() == ("reset", {})
        assert received.last


@pytest.mark.parametrize("last", ["nonsense", "-1", "0x", "999999999999999999999999"])
async def test_a_cursor_of_another_store_sends_a_reset(http, last):
    async with stream(http, last) as received:
        assert await received.next() == ("reset", {})


async def test_an_invalid_last_event_id_is_refused(http):
    assert (await http("GET", "/v1/events", Last_Event_ID="x" * 300)).status == 422


async def test_an_idle_stream_gets_keep_alive_comments(http, monkeypatch):
    monkeypatch.setattr(sse, "COMMENT_EVERY", 0.05)
    async with stream(http) as received:
        async with asyncio.timeout(10):
            while not (await received.answer.content.readline()).startswith(b": keep-alive"):
                pass


async def test_the_store_is_not_read_without_streams(http):
    async with stream(http) as one, stream(http) as other:
        await one.next()
        await other.next()
        await eventually(lambda: len(http.service.feed._reads) == 1)
    await eventually(lambda: not http.service.feed._reads)


async def test_a_new_stream_does_not_share_a_cancelled_read(http):
    feed = http.service.feed
    begun = (await http.service.app.timeseries.transitions(None, 1)).cursor
    leaving = asyncio.create_task(feed.after(begun))
    await eventually(lambda: feed._reads)
    leaving.cancel()
    await asyncio.sleep(0)  # the read is being cancelled
    coming = asyncio.create_task(feed.after(begun))
    id = (await http.submit("t")).json["id"]
    assert [one.id for one in (await asyncio.wait_for(coming, 90)).transitions] == [id]
    assert leaving.cancelled()


async def test_a_stream_ends_when_its_token_is_revoked(app, monkeypatch):
    monkeypatch.setattr(sse, "COMMENT_EVERY", 0.05)
    monkeypatch.setattr(tokens, "TOKENS_MAX_AGE", 0.05)
    token = await tokens.create(parts_of(app).records, ["read"])
    async with serving(app) as client:
        headers = {"Authorization": f"Bearer {token}"}
        async with client.session.get(f"{client.url}/v1/events", headers=headers) as answer:
            assert answer.status == 200
            received = Stream(answer)
            await received.next()
            await tokens.revoke(parts_of(app).records, token.split("_")[1])
            with pytest.raises(EOFError):
                await received.next()
        await eventually(lambda: client.service.streams == 0)


async def test_a_stream_ends_when_a_pipelined_request_arrives(http):
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await eventually(lambda: http.service.streams == 1)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"event: here" in await asyncio.wait_for(reader.readuntil(b'"holdfast"}'), 90)
    assert http.service.streams == 0
    writer.close()


async def test_head_of_a_stream_is_405(http):
    assert (await http("HEAD", "/v1/events")).status == 405


async def test_streams_end_cleanly_when_the_server_stops(app):
    async with serving(app) as client, stream(client) as received:
        await received.next()
        client.service.stop()
        with pytest.raises(EOFError):
            await received.next()
