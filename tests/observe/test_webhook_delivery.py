"""Webhooks: signed, retried, durable, and not sent to private addresses."""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from holdfast import ConfigError, Holdfast, OutcomeUnknown, StoreUnavailable
from holdfast.app import parts_of
from holdfast.webhooks.delivery import is_public
from holdfast.webhooks.service import QUEUE, TASK
from support.eventually import eventually
from support.http import serving
from support.inside import session_of
from support.workers import work_off, working

SECRET = "an app's secret"


class Receiver:
    """A real server that records requests and answers with the given codes; the last one repeats."""

    def __init__(self, *codes):
        self.codes = list(codes or [200])
        self.got = []

    async def answer(self, request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append((headers, await request.read()))
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return web.Response(status=code, headers={"location": "/elsewhere"} if code == 302 else {})

    @property
    def messages(self):
        return [json.loads(body) for _, body in self.got]


@asynccontextmanager
async def receiving(*codes):
    receiver, site = Receiver(*codes), web.Application()
    site.router.add_route("*", "/{path:.*}", receiver.answer)
    runner = web.AppRunner(site)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@pytest.fixture
def app(make_app, monkeypatch):
    monkeypatch.setenv("HOLDFAST_PRIVATE_WEBHOOKS", "on")
    return make_app(secret=SECRET, poll=0.05)


def verified(key, headers, body):
    """Verify a signature by the rules of standardwebhooks.com."""
    secret = base64.b64decode(key.removeprefix("whsec_"))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    good = "v1," + base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()
    return hmac.compare_digest(good, headers["webhook-signature"])


async def test_the_end_of_a_job_sends_a_signed_webhook(app):
    @app.task(max_attempts=1)
    async def send(password: str) -> None:
        raise RuntimeError("no")

    async with receiving() as receiver:
        key = await app.webhooks.add("shop", receiver.url)
        async with working(app):
            handle = await send.enqueue("a-password")
            await eventually(lambda: receiver.got)
        (headers, body), (message,) = receiver.got[0], receiver.messages
    assert verified(key, headers, body)
    assert not verified(key, headers, body + b" ")
    assert headers["content-type"] == "application/json"
    assert message["type"] == "job_dead"
    assert message["timestamp"]
    data = message["data"]
    assert (data["job_id"], data["job_type"], data["queue"], data["attempt"]) == (handle.id, "send", "default", 1)
    assert data["error"] == "RuntimeError: no"
    assert b"a-password" not in body


async def test_webhooks_filter_by_event_queue_and_task(app):
    async with receiving() as receiver:
        await app.webhooks.add("dead", f"{receiver.url}/dead", events=["job_dead"])
        await app.webhooks.add("mail", f"{receiver.url}/mail", queues=["mail"])
        await app.webhooks.add("noop", f"{receiver.url}/noop", tasks=["noop"], events=["job_succeeded"])

        @app.task(queue="mail")
        async def send() -> None: ...

        sent, done = await send.enqueue(), await app.enqueue("noop")
        async with working(app):
            await eventually(lambda: len(receiver.got) == 2)
    received = {(message["data"]["job_id"], message["type"]) for message in receiver.messages}
    assert received == {(sent.id, "job_succeeded"), (done.id, "job_succeeded")}


async def test_a_delivery_is_retried_with_the_same_id(app, monkeypatch):
    monkeypatch.setattr("holdfast.webhooks.service.BACKOFF", _soon())
    async with receiving(500, 302, 200) as receiver:
        await app.webhooks.add("shop", receiver.url)
        await app.enqueue("noop")
        async with working(app):
            await eventually(lambda: len(receiver.got) == 3)
            (delivery,) = (await app.jobs(task=TASK)).jobs
            await app.handle(delivery.id).wait(timeout=30)
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {delivery.id}
    assert len({body for _, body in receiver.got}) == 1
    job = await app.job(delivery.id)
    assert (job.state, job.attempt) == ("succeeded", 3)
    assert [line.error for line in job.history[:2]] == [
        "HoldfastError: webhook 'shop': the receiver answered 500 instead of 2xx; see the log of the receiver",
        "HoldfastError: webhook 'shop': the receiver answered 302 instead of 2xx; see the log of the receiver",
    ], "a redirect is not followed"


def _soon():
    from holdfast import Backoff

    return Backoff(0.0, 1.0, 0.0, 0.0)


async def test_a_410_response_ends_the_delivery(app):
    async with receiving(410) as receiver:
        await app.webhooks.add("shop", receiver.url)
        await app.enqueue("noop")
        async with working(app):
            (delivery,) = await eventually(lambda: _deliveries(app))
            job = await app.handle(delivery.id).wait(timeout=30)
    assert (job.state, job.attempt) == ("dead", 1)
    assert "410" in job.error


async def _deliveries(app):
    return (await app.jobs(task=TASK)).jobs


async def test_the_end_of_a_delivery_sends_no_webhook(app):
    async with receiving() as receiver:
        await app.webhooks.add("shop", receiver.url)
        await app.enqueue("noop")
        async with working(app):
            await eventually(lambda: receiver.got)
            (delivery,) = await _deliveries(app)
            await app.handle(delivery.id).wait(timeout=30)
    assert len(await _deliveries(app)) == 1


async def test_ends_by_operators_and_manual_claims_send_webhooks(app):
    async with receiving() as receiver:
        await app.webhooks.add("shop", receiver.url)
        waiting = await app.submit("raw", b"", queue="hands", delay=60)
        await app.cancel(waiting.id)
        done = await app.submit("raw", b"", queue="hands")
        (claim,) = await app.claim(["hands"])
        await claim.complete()
        async with working(app):
            await eventually(lambda: len(receiver.got) == 2)
    assert {(message["data"]["job_id"], message["type"]) for message in receiver.messages} == {
        (waiting.id, "job_cancelled"),
        (done.id, "job_succeeded"),
    }


async def test_a_delivery_survives_the_app_that_enqueued_it(make_app, monkeypatch, tmp_path):
    """Closing the app stores the delivery; another process sends it later."""
    monkeypatch.setenv("HOLDFAST_PRIVATE_WEBHOOKS", "on")
    url = f"sqlite:///{tmp_path}/durable.db"
    async with receiving() as receiver:
        async with Holdfast(url, secret=SECRET) as first:
            await first.webhooks.add("shop", receiver.url)
            await first.submit("raw", b"", queue="hands")
            (claim,) = await first.claim(["hands"])
            await claim.complete()
        assert receiver.got == []
        async with Holdfast(url, secret=SECRET) as second:
            await work_off(second)
    assert len(receiver.got) == 1


async def test_the_enqueue_of_a_delivery_is_retried_after_a_store_outage(app, monkeypatch, caplog):
    monkeypatch.setattr("holdfast.webhooks.service.TRY_AGAIN", 0.01)
    await app.webhooks.add("shop", "https://a.example/")
    await app.submit("raw", b"", queue="hands")
    (claim,) = await app.claim(["hands"])
    real, failures = (
        session_of(app).commit.insert,
        [StoreUnavailable("down"), OutcomeUnknown("who knows")],
    )

    async def insert(jobs):
        if failures:
            raise failures.pop()
        return await real(jobs)

    monkeypatch.setattr(session_of(app).commit, "insert", insert)
    await claim.complete()
    await eventually(lambda: _deliveries(app))
    assert len(await _deliveries(app)) == 1
    assert "storing webhook deliveries failed, will retry" in caplog.text


async def test_a_process_without_the_secret_logs_that_no_webhook_is_sent(tmp_path, caplog):
    url = f"sqlite:///{tmp_path}/two.db"
    async with Holdfast(url, secret=SECRET) as rich, Holdfast(url) as poor:
        await rich.webhooks.add("shop", "https://a.example/")
        await poor.close()  # settings are read when the app opens, or within ten seconds
        await poor.submit("raw", b"", queue="hands")
        (claim,) = await poor.claim(["hands"])
        await claim.complete()
        assert "HOLDFAST_SECRET is not set" in caplog.text
        assert await _deliveries(rich) == []


async def ended_delivery(app, other, receiver):
    """The result of a delivery enqueued by one app and claimed by a worker of another."""
    key = await app.webhooks.add("shop", receiver.url)
    await app.submit("raw", b"", queue="hands")
    (claim,) = await app.claim(["hands"])
    await claim.complete()
    (delivery,) = await eventually(lambda: _deliveries(app))
    await work_off(other, queues=[QUEUE])
    return key, await other.job(delivery.id)


async def test_a_delivery_of_an_older_secret_is_signed_with_the_first(app, make_app):
    await app.open()
    rotated = make_app(session_of(app).store.sibling(), secret=["new", SECRET])
    async with receiving() as receiver:
        old_key, delivery = await ended_delivery(app, rotated, receiver)
        assert delivery.state == "succeeded"
        (headers, body), new_key = receiver.got[0], await rotated.webhooks.key("shop")
    assert verified(new_key, headers, body)
    assert not verified(old_key, headers, body)


async def test_a_worker_without_the_secret_leaves_a_delivery_to_others(app, make_app):
    await app.open()
    poor = make_app(session_of(app).store.sibling())
    async with receiving() as receiver:
        _, delivery = await ended_delivery(app, poor, receiver)
    assert (delivery.state, receiver.got) == ("failed", [])
    assert "set secret= or HOLDFAST_SECRET" in delivery.error


async def test_a_delivery_copied_from_another_store_is_not_sent(app, tmp_path):
    async with receiving() as receiver, Holdfast(f"sqlite:///{tmp_path}/other.db", secret=SECRET) as other:
        for each in (app, other):
            await each.webhooks.add("shop", receiver.url)
        await other.submit("raw", b"", queue="hands")
        (claim,) = await other.claim(["hands"])
        await claim.complete()
        (delivery,) = await eventually(lambda: _deliveries(other))
        record = await parts_of(other).handles.record(delivery.id)
        await app.submit(record.task, record.payload, json=True, id=record.id, queue=QUEUE)
        await work_off(app, queues=[QUEUE])
        job = await app.job(record.id)
    assert (job.state, receiver.got) == ("dead", [])
    assert "or is a copy" in job.error


async def test_sync_code_manages_webhooks(app):
    def manage():
        key = app.sync.webhooks.add("shop", "https://a.example/", queues=["mail"])
        (hook,) = app.sync.webhooks.list()
        return key, hook.queues, app.sync.webhooks.remove("shop")

    key, queues, removed = await asyncio.to_thread(manage)
    assert key.startswith("whsec_")
    assert (queues, removed) == (("mail",), True)


async def test_a_running_worker_uses_a_new_webhook(app):
    async with receiving() as receiver, working(app):
        await app.enqueue("noop")
        await app.webhooks.add("shop", receiver.url)
        await app.enqueue("noop")
        await eventually(lambda: receiver.got)


async def test_a_removed_webhook_gets_no_delivery(app):
    async with receiving() as receiver:
        await app.webhooks.add("shop", receiver.url)
        done = await app.submit("raw", b"", queue="hands")
        (claim,) = await app.claim(["hands"])
        await claim.complete()
        (delivery,) = await eventually(lambda: _deliveries(app))
        assert await app.webhooks.remove("shop")
        assert not await app.webhooks.remove("shop")
        assert await app.webhooks.list() == []
        await work_off(app, queues=[QUEUE])
        job = await app.job(delivery.id)
    assert (job.state, receiver.got) == ("dead", [])
    assert job.error == f"Discard: delivery {job.id} was not sent: webhook 'shop' has been removed"
    assert done.id


# -- refused addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
async def test_private_addresses_are_refused_unless_allowed(make_app, host):
    app = make_app(secret=SECRET)
    async with receiving() as receiver:
        port = receiver.url.rpartition(":")[2]
        await app.webhooks.add("inside", f"http://{host}:{port}")
        await _one_end(app)
        await work_off(app, queues=[QUEUE])
        (delivery,) = await _deliveries(app)
    assert receiver.got == []
    assert delivery.state == "failed"
    assert "HOLDFAST_PRIVATE_WEBHOOKS" in delivery.error or "could not be reached" in delivery.error


async def _one_end(app):
    await app.submit("raw", b"", queue="hands")
    (claim,) = await app.claim(["hands"])
    await claim.complete()
    await eventually(lambda: _deliveries(app))


async def test_dns_rebinding_is_refused(make_app, monkeypatch):
    """The address of the connection is checked, not an earlier DNS answer."""
    app, looked = make_app(secret=SECRET), []
    real = asyncio.base_events.BaseEventLoop.getaddrinfo

    async def lie(loop, host, port, **options):
        if host != "rebind.example":
            return await real(loop, host, port, **options)
        looked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", lie)
    async with receiving() as receiver:
        port = receiver.url.split(":")[2].partition("/")[0]
        await app.webhooks.add("rebind", f"http://rebind.example:{port}/")
        await _one_end(app)
        await work_off(app, queues=[QUEUE])
        (delivery,) = await _deliveries(app)
    assert looked
    assert receiver.got == []
    assert "127.0.0.1 is not a public address" in delivery.error


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1",
     "64:ff9b::a00:1", "2002:a00:1::", "192.0.2.1", "240.0.0.1"],
)  # fmt: skip
def test_non_public_addresses(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::808:808"])
def test_public_addresses(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["ftp://a.example", "file:///etc/passwd", "http://", "//a.example", "http://user:pw@a.example/",
     "http://a.example/#x", "http://a.example:99999/", "http://a.example/\r\nx: y", "http://a.example/ä", "",
     "http://a.example/" + "x" * 3000],
)  # fmt: skip
async def test_an_invalid_url_is_refused(app, url):
    with pytest.raises(ConfigError, match="webhook 'shop' was not stored: its URL must"):
        await app.webhooks.add("shop", url)


async def test_other_events_are_refused(app):
    with pytest.raises(ConfigError, match=r"webhook 'shop' was not stored: .*not handler_start"):
        await app.webhooks.add("shop", "https://a.example/", events=["handler_start"])


async def test_a_webhook_name_is_unique(app):
    await app.webhooks.add("shop", "https://a.example/")
    with pytest.raises(ConfigError, match="already"):
        await app.webhooks.add("shop", "https://b.example/")


async def test_without_a_secret_there_are_no_webhooks(make_app):
    with pytest.raises(ConfigError, match="HOLDFAST_SECRET"):
        await make_app().webhooks.add("shop", "https://a.example/")


async def test_an_enqueued_delivery_is_not_signed(app):
    async with receiving() as receiver:
        await app.webhooks.add("shop", receiver.url)
        forged = {"webhook": "shop", "message": '{"type": "job_succeeded"}', "proof": "00"}
        handle = await app.submit(TASK, json.dumps(forged).encode(), json=True, queue=QUEUE)
        await work_off(app, queues=[QUEUE])
    job = await handle.job()
    assert job.state == "dead"
    assert "created with another HOLDFAST_SECRET" in job.error
    assert receiver.got == []


async def test_a_delivery_cannot_be_replayed(app):
    async with receiving() as receiver:
        await app.webhooks.add("shop", receiver.url)
        await _one_end(app)
        await work_off(app, queues=[QUEUE])
        (delivery,) = await _deliveries(app)
        copy = await app.submit(TASK, json.dumps(delivery.payload).encode(), json=True, queue=QUEUE)
        await work_off(app, queues=[QUEUE])
        assert [headers["webhook-id"] for headers, _ in receiver.got] == [delivery.id]
    job = await copy.job()
    assert job.state == "dead"
    assert "or is a copy" in job.error


@pytest.mark.parametrize("task", [TASK, "holdfast.call", "holdfast.anything"])
async def test_deliveries_cannot_be_submitted_over_http(app, task):
    async with serving(app) as http:
        alone = await http.submit(task)
        jobs = [{"type": task, "payload": {}, "key": "a"}, {"type": "noop", "payload": {}, "key": "b"}]
        batch = await http("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert (alone.status, alone.problem) == (422, "invalid")
    assert "is internal to Holdfast" in alone.json["detail"]
    assert [one["status"] for one in batch.json["jobs"]] == [422, 201]


async def test_the_key_is_not_stored(app):
    key = await app.webhooks.add("shop", "https://a.example/")
    kept = (await parts_of(app).records.all("webhook"))["shop"].value.decode()
    assert key not in kept
    assert SECRET not in kept


async def test_a_delivery_times_out(app, monkeypatch):
    monkeypatch.setattr("holdfast.webhooks.delivery.POST_TIMEOUT", 0.2)

    async def silent(reader, writer):
        await reader.read()  # until the client disconnects
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        await app.webhooks.add("slow", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await _one_end(app)
        await work_off(app, queues=[QUEUE])
        server.close()
    (delivery,) = await _deliveries(app)
    assert delivery.state == "failed"
    assert "no answer within 0.2 s" in delivery.error


# -- from the command line


def test_webhooks_from_the_command_line(terminal):
    output = terminal("webhook", "add", "shop", "https://a.example/hook?token=t0psecret", code=2)
    assert "HOLDFAST_SECRET" in output
    terminal.env["HOLDFAST_SECRET"] = SECRET
    output = terminal("webhook", "add", "shop", "https://a.example/hook?token=t0psecret", "--event", "job_dead")
    assert "whsec_" in output
    shown = terminal.json("webhook", "list")
    assert shown[0]["events"] == ["job_dead"]
    assert "t0psecret" not in terminal("webhook", "list") + json.dumps(shown)
    terminal("webhook", "remove", "shop")
    terminal("webhook", "remove", "shop", code=1)
    assert "no webhooks" in terminal("webhook", "list")
