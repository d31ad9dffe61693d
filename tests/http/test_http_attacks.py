"""Hostile requests get the right status, and the server stays alive."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.http import limits
from holdfast.store import rpc as wire
from support.eventually import eventually
from support.http import serving


@pytest.fixture(autouse=True)
async def alive_afterwards(http):
    yield
    assert (await http("GET", "/health")).status == 200
    assert (await http.submit("t")).status == 201


async def post(http, data: bytes, **headers):
    return await http("POST", "/v1/jobs", data=data, Idempotency_Key="k", **headers)


def job(payload: bytes) -> bytes:
    return b'{"type": "t", "payload": ' + payload + b"}"


# -- bodies


async def test_a_payload_over_the_limit_is_413(http, app):
    reply = await post(http, job(b'{"x": "' + b"x" * 1024**2 + b'"}'))
    assert reply.status == 413
    assert reply.problem == "too-large"
    await app.config.set("max_payload", 1000)
    reply = await post(http, job(b'{"x": "' + b"x" * 1000 + b'"}'))
    assert reply.status == 413
    assert "max_payload" in reply.json["detail"]


async def test_a_body_over_the_limit_is_413_before_it_is_read(http):
    reply = await http.raw(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
        b"Content-Length: 1000000000000\r\n\r\n{"
    )
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in reply


async def test_a_body_without_content_length_is_limited(http):
    async def pieces():
        for _ in range(40):
            yield b"x" * 65536

    async with http.session.post(
        f"{http.url}/v1/jobs", data=pieces(), headers={"Content-Type": "application/json", "Idempotency-Key": "k"}
    ) as answer:
        assert answer.status == 413


async def test_a_batch_of_very_many_values_is_413_before_it_is_decoded(http):
    reply = await http("POST", "/v1/jobs/batch", data=b'{"jobs": [' + b"1," * limits.VALUES + b"1, 1]}")
    assert (reply.status, reply.problem) == (413, "too-large")


async def test_a_batch_over_the_limit_is_413(http):
    reply = await http("POST", "/v1/jobs/batch", data=b'{"jobs": ["' + b"x" * limits.BATCH + b'"]}')
    assert reply.status == 413


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"nonsense", b"\xff\xfe", b"\x00", b"{}{}", b"'", b'{"type": "t"',
        b'\xef\xbb\xbf{"type":"t","payload":{}}',
        job(b"NaN"), job(b'{"x": NaN}'), job(b'{"x": Infinity}'), job(b'{"x": 1e999}'), job(b"{'x': 1}"),
        job(b'{"x": "\\u0000"}'), job(b'{"\\u0000": 1}'), job(b'{"x": "\\ud800"}'), job(b'{"x": "\\udc00\\ud800"}'),
        job(b'{"x": "\xff"}'), job(b'{"x": "\x00"}'), job(b'{"x": "a\nb"}'),
        job(b'{"x": ' + b"[" * 101 + b"]" * 101 + b"}"), job(b'{"x":' * 200 + b"1" + b"}" * 200),
        job(b"[" * 500_000 + b"]" * 500_000), b"[" * 1_000_000, b"[" * 500_000 + b"]" * 500_000, b'{"a":' * 200_000,
        b'{"type": "t", "payload": {}, "tags": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        b'{"type": "\\ud800", "payload": {}}', b'{"type": "\\u0000", "payload": {}}',
        b'{"type": "t", "payload": {}, "max_attempts": 1e999}', b'{"type": "t", "payload": {}, "delay": NaN}',
    ],
    ids=lambda data: repr(data[:60])[2:50],
)  # fmt: skip
async def test_json_that_a_store_cannot_keep_is_422(http, data):
    reply = await post(http, data)
    assert reply.status == 422, reply
    assert reply.problem == "invalid"


@pytest.mark.parametrize("path", ["/v1/jobs/batch", "/v1/claims", "/v1/claims/x/complete", "/v1/dlq/retry"])
@pytest.mark.parametrize("data", [b"[" * 1_000_000, b'{"a":' * 100_000, b"NaN", b'{"jobs": [NaN]}', b'"\\ud800"'])
async def test_every_body_is_validated(http, path, data):
    assert (await http("POST", path, data=data)).status == 422


async def test_a_hundred_levels_of_nesting_are_accepted(http):
    assert (await post(http, job(b'{"x": ' + b"[" * 99 + b"]" * 99 + b"}"))).status == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
async def test_a_body_without_the_json_content_type_is_415(http, kind):
    reply = await post(http, job(b"{}"), Content_Type=kind)
    assert reply.status == 415
    assert reply.problem == "wrong-media-type"
    assert (await post(http, job(b"{}"), Content_Type="Application/JSON; charset=utf-8")).status == 201


# -- request line and headers


@pytest.mark.parametrize(
    "request_line",
    [b"GET /health HTTP/1.1\n\x00\n\n", b"nonsense\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n",
     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET /\x00 HTTP/1.1\r\n\r\n",
     b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
     b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
     b"GET /health HTTP/1.1\r\nHost: localhost\r\n\x01: a\r\n\r\n"],
    ids=repr,
)  # fmt: skip
async def test_malformed_http_is_400(http, request_line):
    assert (await http.raw(request_line)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 2x\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
    ],
)
async def test_an_ambiguous_content_length_is_400(http, headers):
    base = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert (await http.raw(base + headers + b"\r\n{}")).startswith(b"HTTP/1.1 400 ")


async def test_headers_over_the_limit_are_431(http):
    many = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(100))
    for data in (many, b"X: " + b"x" * 200_000, b"X" * 200_000):
        reply = await http.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + data)
        assert reply.startswith(b"HTTP/1.1 431 ")
        assert b"application/problem+json" in reply


async def test_a_complete_request_with_too_many_headers_is_431(http):
    many = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(100))
    reply = await http.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n")
    assert reply.startswith(b"HTTP/1.1 431 ")


async def test_client_input_is_not_copied_into_response_headers(http):
    for path in ("/v1/jobs/x%0d%0aSet-Cookie:%20a=b", "/v1/config/%0d%0aX:y", "/%0d%0aX:%20y"):
        reply = await http("GET", path)
        assert reply.status in (404, 422)
        assert not {"set-cookie", "x"} & {name.lower() for name in reply.headers}
    key = await http.raw(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: a\rb\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    assert key.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 422 "))


async def test_websockets_and_upgrades_are_not_supported(http):
    reply = await http.raw(
        b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert not reply.startswith(b"HTTP/1.1 101")


# -- slow clients


async def test_incomplete_headers_time_out(http, monkeypatch):
    monkeypatch.setattr(limits, "HEADERS_SECONDS", 0.2)
    for start in (b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: y\r\n"):
        assert (await http.raw(start)).startswith(b"HTTP/1.1 408 ")


async def test_slow_headers_time_out(http, monkeypatch):
    monkeypatch.setattr(limits, "HEADERS_SECONDS", 0.3)
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(b"GET /health HTTP/1.1\r\n")

    async def drip():
        while True:
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert (await asyncio.wait_for(reader.read(), 90)).startswith(b"HTTP/1.1 408 ")
    dripping.cancel()
    writer.close()


async def test_slow_headers_of_a_second_request_time_out(http, monkeypatch):
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b'"holdfast"}')
    monkeypatch.setattr(limits, "HEADERS_SECONDS", 0.2)
    writer.write(b"GET /heal")
    assert (await asyncio.wait_for(reader.read(), 90)).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_stray_newline_does_not_truncate_a_response(http, monkeypatch):
    monkeypatch.setattr(limits, "HEADERS_SECONDS", 0.1)
    body = b'{"wait": 0.5}'
    head = (
        b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
    )
    reply = await http.raw(head + body + b"\r\n")
    assert reply.startswith(b"HTTP/1.1 200 ")


async def test_a_missing_body_times_out(http, monkeypatch):
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.2)
    reply = await http.raw(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in reply


async def test_a_client_that_does_not_read_is_disconnected(http, app, monkeypatch):
    monkeypatch.setattr(limits, "UNREAD_SECONDS", 0.3)
    monkeypatch.setattr(limits, "PAGE_BYTES", 100 * limits.MIB)
    for number in range(20):
        await app.submit("big", b'{"x": "%s"}' % (b"x" * 900_000), json=True, id=f"b{number}")
    reader, writer = await asyncio.open_connection(*http.address, limit=1024)
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connections = http.server.server_state.connections

    def unread() -> bool:
        return any(one.transport.get_write_buffer_size() > 0 for one in connections)

    await eventually(unread)
    await eventually(lambda: not unread())
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(18_000_000), 90)
    writer.close()


async def test_a_slow_reader_gets_the_whole_response(http, app, monkeypatch):
    monkeypatch.setattr(limits, "UNREAD_SECONDS", 1.5)
    monkeypatch.setattr(limits, "PAGE_BYTES", 100 * limits.MIB)
    for number in range(20):
        await app.submit("big", b'{"x": "%s"}' % (b"x" * 900_000), json=True, id=f"b{number}")
    reader, writer = await asyncio.open_connection(*http.address, limit=1024)
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _ in range(36):  # longer than UNREAD_SECONDS in total
        await asyncio.wait_for(reader.readexactly(500_000), 90)
        await asyncio.sleep(0.1)
    writer.close()


# -- trailers


@pytest.mark.parametrize(
    "trailer",
    [b"Authorization: Bearer x\r\n\r\n", b"X: y\r\nZ: ", b"X: " + b"x" * 200_000, b"X" * 200_000],
    ids=["whole", "begun", "long value", "long name"],
)
async def test_trailers_are_refused(http, trailer):
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(head)
    await eventually(lambda: any(one.cycle is not None for one in http.server.server_state.connections))
    writer.write(b"2\r\n{}\r\n0\r\n" + trailer)
    reply = await asyncio.wait_for(reader.readuntil(b"}"), 90)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b"trailers" in reply
    writer.close()


async def test_trailers_after_an_early_response_use_no_memory(app):
    async with serving(app, token="a-token-that-is-long-enough") as client:
        reader, writer = await asyncio.open_connection(*client.address)
        writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 401 ")
        try:
            for number in range(1000):
                writer.write(b"X%d: " % number + b"x" * 8000 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()
        pytest.fail("eight megabytes of trailers were taken")


@pytest.mark.parametrize("name", [b"Host", b"Authorization"])
async def test_a_trailer_is_not_used_as_a_header(app, name):
    token = b"a-token-that-is-long-enough"
    given = {b"Host": b"localhost", b"Authorization": b"Bearer " + token}
    trailer = given.pop(name)
    headers = b"".join(b"%s: %s\r\n" % pair for pair in given.items())
    async with serving(app, token=token.decode()) as client:
        reply = await client.raw(
            b"GET /v1/stats HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n0\r\n%s: %s\r\n\r\n"
            % (headers, name, trailer)
        )
        assert reply.startswith(b"HTTP/1.1 400 ")


async def test_a_body_in_many_small_chunks_is_accepted(http):
    data = job(b'{"x": "' + b"x" * 20_000 + b'"}')
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    for number in range(0, len(data), 1000):
        writer.write(b"".join(b"1\r\n%c\r\n" % byte for byte in data[number : number + 1000]))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 90)).startswith(b"HTTP/1.1 201 ")
    writer.close()


# -- limits of concurrency


async def test_too_many_streams_and_waiting_claims_are_503(http, monkeypatch):
    monkeypatch.setattr(limits, "STREAMS", 0)
    for method, path, body in (("GET", "/v1/events", None), ("POST", "/v1/claims", {"wait": 1})):
        reply = await http(method, path, body)
        assert reply.status == 503
        assert reply.problem == "busy"
        assert reply.headers["retry-after"]
    assert (await http("POST", "/v1/claims", {})).status == 200


async def test_a_connection_over_the_maximum_is_503(http, monkeypatch):
    monkeypatch.setattr(limits, "SERVER_CONNECTIONS", 1)
    await http("GET", "/v1/stats")  # this authenticated connection stays open
    reply = await http.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert b"urn:holdfast:problem:busy" in reply


async def test_connections_far_over_the_maximum_are_closed_and_logged_once(http, monkeypatch, caplog):
    monkeypatch.setattr(limits, "SERVER_CONNECTIONS", 1)
    await http("GET", "/v1/stats")  # this authenticated connection stays open
    assert (await http("GET", "/health")).status == 200
    monkeypatch.setattr(limits, "REFUSED_WITH_ANSWER", 0)
    for _ in range(3):
        assert await http.raw(b"") == b""
    assert caplog.text.count("a connection was refused") == 1


async def test_concurrent_streams_are_counted(http, app, monkeypatch):
    monkeypatch.setattr(limits, "STREAMS", 2)
    real, all_here = app.timeseries.transitions, asyncio.Event()

    async def slow(*given: object):
        await all_here.wait()
        return await real(*given)

    monkeypatch.setattr(app.timeseries, "transitions", slow)
    asking = [asyncio.create_task(http.session.get(f"{http.url}/v1/events")) for _ in range(5)]
    await eventually(lambda: sum(one.done() for one in asking) == 3)
    all_here.set()
    answers = await asyncio.gather(*asking)
    assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503]
    for answer in answers:
        answer.close()
    await eventually(lambda: http.service.streams == 0)


async def test_the_request_id_of_a_remote_store_is_limited(http):
    for length, status in ((64, 200), (65, 422)):
        reply = await http(
            "POST",
            "/v1/store/put_record",
            ["schedule", "x", None, None],
            Holdfast_Protocol=str(wire.PROTOCOL),
            Holdfast_Request="x" * length,
        )
        assert reply.status == status, reply


# -- shell


async def test_shell_jobs_are_refused_unless_their_command_is_listed(http, app):
    shell = {"command": "echo hi"}
    reply = await http.submit("shell", shell)
    assert reply.status == 403
    assert reply.problem == "shell-refused"
    assert (await app.stats()).queues == []
    async with serving(app, allow_shell=["echo hi"]) as allowed:
        assert (await allowed.submit("shell", shell)).status == 201
        for wrong in (
            {"command": "echo hi; id"},
            {"command": "echo  hi"},
            {"command": ["echo hi"]},
            {"command": "echo hi", "env": {"PATH": "/tmp"}},
            {"command": "echo hi", "cwd": "/tmp"},
            {"command": "echo hi", "*": ["id"]},
            {"*": ["echo hi"]},
            {},
        ):
            assert (await allowed.submit("shell", wrong)).status == 403, wrong
        assert (await allowed.submit("shell", {**shell, "stdin": "x"})).status == 201


# -- secrets and errors


async def test_a_token_is_in_no_log(app, caplog):
    token = "a-secret-token-of-a-user"
    async with serving(app, token=token) as client:
        with caplog.at_level(logging.DEBUG):
            await client("GET", "/v1/stats", token=token)
            await client("GET", f"/v1/stats?token={token}")
            await client("GET", "/v1/stats", token=token + "x")
            await client.raw(b"GET /health HTTP/1.1\r\nAuthorization: Bearer %s\r\nbroken\r\n\r\n" % token.encode())
    assert caplog.records
    assert token not in caplog.text


async def test_job_data_is_never_served_as_html(http):
    await http.submit("t", {"x": "<script>alert(1)</script>"})
    for path in ("/v1/jobs", "/v1/stats", "/nope<script>", "/v1/jobs/<script>"):
        reply = await http("GET", path)
        assert reply.headers["content-type"].startswith(("application/json", "application/problem+json"))
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'")
        assert reply.headers["cache-control"] == "no-store"


async def test_an_unexpected_error_is_500_without_details(http, app, monkeypatch, caplog):
    async def broken(*_: object, **__: object):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(app, "stats", broken)
    reply = await http("GET", "/v1/stats")
    assert reply.status == 500
    assert reply.problem == "internal"
    assert "secret" not in reply.content.decode()
    assert "a secret of the inside" in caplog.text
