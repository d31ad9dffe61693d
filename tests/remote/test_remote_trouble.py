"""A server that fails or refuses: clear errors, nothing half done, and automatic recovery."""

import asyncio
import logging
import shutil
import signal
import subprocess

import pytest
from cutter import Cutter

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError, InvalidJob, OutcomeUnknown, PayloadTooLarge, StoreUnavailable
from holdfast.http import store_rpc, tokens
from holdfast.store import rpc as wire
from holdfast.store.open import open_store
from holdfast.store.protocol import Batch, Examining, records_of
from holdfast.store.remote import trouble
from holdfast.testing.build import cancellation, new_job, succeeded
from holdfast.testing.verbs import claim, every, insert
from support.eventually import eventually
from support.inside import session_of
from support.outage import outlasted
from support.ports import free_port
from support.served import Served
from support.silent_proxy import check_lease_outlasts_silence
from support.workers import working

SECRET = "hf_0123456789ab_correct-horse"


# -- who may


async def test_a_token_from_the_environment_or_a_file_is_accepted(serve, open_at, monkeypatch, tmp_path):
    server = await serve(roles={SECRET: frozenset({"work"})})
    monkeypatch.setenv("HOLDFAST_TOKEN", SECRET)
    await insert(await open_at(server.url), new_job("a"))
    monkeypatch.delenv("HOLDFAST_TOKEN")
    (tmp_path / "token").write_text(f"{SECRET}\n")
    assert len(await every(await open_at(f"{server.url}?token_file={tmp_path}/token"))) == 1


async def test_a_missing_or_wrong_token_is_reported_and_never_shown(serve, open_at, monkeypatch):
    server = await serve(roles={SECRET: frozenset({"work"})})
    with pytest.raises(ConfigError, match="HOLDFAST_TOKEN"):
        await open_at(server.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", "guess")
    with pytest.raises(ConfigError, match="rejects the token") as raised:
        await open_at(server.url)
    assert "guess" not in str(raised.value)


async def test_a_token_without_the_role_is_refused_with_the_needed_role(serve, open_at, monkeypatch):
    server = await serve(roles={SECRET: frozenset({"read"})})
    monkeypatch.setenv("HOLDFAST_TOKEN", SECRET)
    with pytest.raises(ConfigError, match="role 'work'"):
        await open_at(server.url)


async def test_a_real_server_accepts_stored_tokens_and_its_own(tmp_path, open_at, monkeypatch):
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        work, read = (
            await tokens.create(parts_of(app).records, ["work"]),
            await tokens.create(parts_of(app).records, ["read", "submit"]),
        )
    with Served(f"sqlite:///{tmp_path}/jobs.db", tmp_path, token="the-server's-own-token") as served:
        for token in (work, "the-server's-own-token"):
            monkeypatch.setenv("HOLDFAST_TOKEN", token)
            store = await open_at(served.url)
            await insert(store, new_job())
            with pytest.raises(ConfigError, match="cannot be read or written over HTTP"):
                await records_of(store, "token")
        for token, why in ((read, "role 'work'"), (f"{work}x", "rejects the token"), ("", "HOLDFAST_TOKEN")):
            monkeypatch.setenv("HOLDFAST_TOKEN", token)
            with pytest.raises(ConfigError, match=why):
                await open_at(served.url)


async def test_a_token_that_was_replaced_is_read_again(serve, open_at, tmp_path):
    server = await serve(roles={SECRET: frozenset({"work"})})
    (tmp_path / "token").write_text(SECRET)
    store = await open_at(f"{server.url}?token_file={tmp_path}/token")
    server.auth.roles = {"another": frozenset({"work"})}
    (tmp_path / "token").write_text("another")
    with pytest.raises(ConfigError):
        await store.stats()
    assert await store.stats() == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://user:hunter2@host", "URL contains a user name or token: remove it"),
        ("http://", "must name one server"),
        ("http://host?timeout=0", "timeout"),
        ("http://host?timeout=soon", "timeout"),
        ("http://host?verify=perhaps", "verify"),
        ("http://host?tls=yes", "unknown parameter tls"),
        ("http://host:port", "ort"),
        ("http://host/#x", "it contains a #"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason(url, why):
    with pytest.raises(ConfigError, match=why) as raised:
        open_store(url, SystemClock())
    assert "hunter2" not in str(raised.value)


async def test_a_token_file_that_cannot_be_a_token_is_refused_unseen(serving, tmp_path):
    for content, why in (
        (b"", "empty"),
        (b"two words", "not a token"),
        (b"new\nline", "not a token"),
        (b"\xff", "read"),
    ):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(ConfigError, match=why) as raised:
            await open_store(f"{serving.url}?token_file={tmp_path}/token", SystemClock()).open()
        assert "words" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        await open_store(f"{serving.url}?token_file={tmp_path}/none", SystemClock()).open()


async def test_a_workers_token_reaches_neither_tokens_nor_shells(store):
    for call in (records_of(store, "token"), store.put_record("token", "mine", b"{}")):
        with pytest.raises(ConfigError, match="cannot be read or written over HTTP"):
            await call
    shell = new_job("s", task="shell", payload=b'{"command": "id"}', codec="json")
    with pytest.raises(InvalidJob, match="shell command is not allowed"):
        await insert(store, shell)
    by_the_clock = b'{"name": "s", "task": "shell", "rule": {"every": 1}, "payload": {"command": "id"}}'
    with pytest.raises(InvalidJob, match="shell command is not allowed"):
        await store.put_record("schedule", "s", by_the_clock)
    assert await every(store) == []


async def test_a_refused_job_does_not_affect_others_of_its_batch(serving):
    app = Holdfast(serving.url)

    @app.task
    async def work() -> None: ...

    async with app:
        calls = [work.enqueue() for _ in range(20)]
        calls.insert(7, app.submit("shell", b'{"command": "id"}', json=True))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in answers if isinstance(one, Exception)] == [InvalidJob]
        assert len((await app.jobs()).jobs) == 20


async def test_a_workers_token_changes_nothing_that_is_an_operators(serve, open_at, monkeypatch):
    roles = {"worker": frozenset({"work"}), "boss": frozenset({"work", "operate"})}
    serving = await serve(roles=roles)
    monkeypatch.setenv("HOLDFAST_TOKEN", "worker")
    store = await open_at(serving.url)
    await insert(store, new_job("a"))
    [record] = await store.get(["a"])
    refused = (
        lambda store: store.write(Batch(changes=[cancellation(record)])),
        lambda store: store.put_record("pause", "default", b"true"),
        lambda store: store.put_record("config", "max_attempts", b"1"),
        lambda store: store.put_record("webhook", "mine", b"{}"),
    )
    for call in refused:
        with pytest.raises(ConfigError, match=r"roles? 'operate'"):
            await call(store)
    assert [each.state for each in await store.get(["a"])] == ["queued"]
    monkeypatch.setenv("HOLDFAST_TOKEN", "boss")
    boss = await open_at(serving.url)
    for call in refused:
        assert await call(boss)


async def test_a_listed_shell_command_passes(serve, open_at):
    store = await open_at((await serve(allow_shell=frozenset({"date"}))).url)
    await insert(store, new_job("s", task="shell", payload=b'{"command": "date"}', codec="json"))
    assert [record.task for record in await every(store)] == ["shell"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    openssl = shutil.which("openssl") or pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=holdfast"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


async def test_https_trusts_the_given_ca(serve, open_at, certificate):
    server = await serve(tls=certificate)
    await insert(await open_at(f"{server.url}?ca={certificate[0]}"), new_job("a"))
    assert len(await every(await open_at(f"{server.url}?verify=no"))) == 1
    with pytest.raises(StoreUnavailable, match="certificate"):
        await open_at(server.url)
    with pytest.raises(ConfigError, match="cannot be used"):
        await open_at(f"{server.url}?ca=/nowhere")


# -- who is there


async def test_another_protocol_is_refused_by_both_versions(serving, open_at, monkeypatch):
    monkeypatch.setattr("holdfast.store.remote.link.PROTOCOL", 99)
    with pytest.raises(ConfigError, match=rf"protocol {wire.PROTOCOL}, the client uses protocol 99; run the same"):
        await open_at(serving.url)


async def test_a_server_of_another_kind_is_reported(open_at):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + said + b"\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    for said, error in (  # noqa: B007  # it is said by the server above
        (b"200 OK", ConfigError),
        (b"404 Not Found", ConfigError),
        (b"302 Found\r\nlocation: https://there", ConfigError),
        (b"429 Too Many Requests", StoreUnavailable),
        (b"502 Bad Gateway", StoreUnavailable),
        (b"nonsense", StoreUnavailable),
    ):
        with pytest.raises(error):
            await open_at(url)
    other.close()


async def test_no_server_at_all_is_a_clear_error(open_at):
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable, match=f"no connection to {url}"):
        await open_at(url)


async def test_a_server_below_a_path_is_found(serve, open_at):
    server = await serve(below="/queue")
    await insert(await open_at(f"{server.url}/queue/"), new_job("a"))
    with pytest.raises(ConfigError, match="not a Holdfast server"):
        await open_at(server.url)


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (503, "store-unavailable", StoreUnavailable),  # at the door, where tokens are looked up in the store
        (503, "busy", StoreUnavailable),
        (408, "too-slow", StoreUnavailable),
        (503, "", OutcomeUnknown),  # a proxy, which may have passed it on
        (504, "", OutcomeUnknown),
        (421, "wrong-host", ConfigError),
        (413, "too-large", PayloadTooLarge),
    ],
)
def test_answers_of_proxies_are_translated(status, kind, error):
    body = f'{{"type": "urn:holdfast:problem:{kind}", "detail": "so it is"}}'.encode() if kind else b"<html>"
    raised = trouble.refusal(status, {}, body, "http://here")
    assert isinstance(raised, trouble.Lost if error is OutcomeUnknown else error)


# -- what fails


async def test_what_the_servers_store_raises_is_raised_here(serving, open_at):
    store, behind = await open_at(serving.url), session_of(serving.app).store

    def raises(error):
        async def call(*_):
            raise error

        return call

    for error, raised in (
        (StoreUnavailable("the disk is full"), StoreUnavailable),
        (OutcomeUnknown("who knows"), OutcomeUnknown),
        (RuntimeError("a driver's"), Exception),
    ):
        behind.write = behind.get = raises(error)
        with pytest.raises(raised, match=str(error)):
            await store.get(["a"])
        with pytest.raises(raised, match=str(error)):
            await insert(store, new_job("a"))
    del behind.write, behind.get
    assert await every(store) == []


async def test_a_cursor_that_is_none_is_refused_as_by_any_store(serving):
    async with Holdfast(serving.url) as app:
        with pytest.raises(InvalidJob, match="cursor"):
            await app.jobs(cursor="nonsense")


async def test_more_than_the_server_takes_at_once_is_sent_one_by_one(serving, monkeypatch):
    monkeypatch.setattr(store_rpc, "MAX_RPC_BODY", 20_000)
    app = Holdfast(serving.url)

    @app.task
    async def work(text: str) -> None: ...

    async with app:
        await asyncio.gather(*(work.enqueue("x" * 5_000) for _ in range(10)))
        with pytest.raises(PayloadTooLarge, match="larger than the server accepts"):
            await work.enqueue("x" * 50_000)
        assert len((await app.jobs()).jobs) == 10


async def test_large_bodies_and_answers_are_transferred(store):
    await insert(store, *(new_job(f"{n}", payload=b"x" * 1_000_000, codec="bytes") for n in range(5)))
    assert {len(record.payload) for record in await claim(store, limit=5)} == {1_000_000}


# -- away, and back


@pytest.mark.extended  # a whole lease has to run out
async def test_a_heartbeat_gives_up_a_silent_connection_before_its_lease_expires(serve, monkeypatch):
    server = await serve()
    await check_lease_outlasts_silence(server.url, int(server.url.rpartition(":")[2]), monkeypatch)


async def test_a_job_outlasts_a_server_that_is_away_for_longer_than_its_lease(tmp_path):
    with Served(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as served:
        job = await outlasted(served.url, served)
    assert (job.attempt, job.result) == (1, "kept")


async def test_a_server_that_stops_answering_is_noticed_and_found_again(tmp_path, open_at):
    with Served(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as served:
        store = await open_at(f"{served.url}?timeout=0.5")
        await insert(store, new_job("a"))
        served.signal(signal.SIGSTOP)
        with pytest.raises(OutcomeUnknown):
            await insert(store, new_job("b"))
        with pytest.raises(StoreUnavailable):
            await store.get(["a"])
        served.signal(signal.SIGCONT)

        async def answers() -> bool:
            try:
                return (await store.get(["a"]))[0] is not None
            except StoreUnavailable:
                return False

        await eventually(answers)
        assert [answer.outcome for answer in await insert(store, new_job("b"))] == ["created"]


async def test_an_idle_worker_wakes_after_its_server_was_restarted(serve):
    server = await serve()
    app = Holdfast(server.url)
    ran = asyncio.Event()

    @app.task
    async def work() -> None:
        ran.set()

    async with app, working(app, poll=0.1):
        await server.stop()
        await serve(port=server.port)

        async def enqueued() -> bool:
            try:
                await work.enqueue()
            except (StoreUnavailable, OutcomeUnknown):
                return False
            return True

        await eventually(enqueued)
        await asyncio.wait_for(ran.wait(), 90)


async def test_hints_come_again_after_a_restart_and_the_outage_is_reported_once(serve, open_at, caplog):
    server = await serve()
    store = await open_at(server.url)
    listener = store.listen(["queue/default"])
    await listener.wait(5.0)  # it listens
    with caplog.at_level(logging.WARNING, "holdfast"):
        await server.stop()
        again = await serve(port=server.port)
        await listener.wait(10.0)  # it listens again
    assert caplog.text.count("finds jobs by polling") == 1
    await insert(await open_at(again.url), new_job())
    await asyncio.wait_for(listener.wait(60.0), 90)
    listener.close()


async def test_hints_continue_after_a_balancer_switches_servers(serve, open_at):
    first, second = await serve(), await serve()
    async with Cutter(first.port, only=("topics",)) as line:
        store, other = await open_at(line.url), await open_at(first.url)
        early = store.listen(["queue/early"])
        await early.wait(5.0)  # it listens
        line.elsewhere = second.port
        line.lose_next(after=False)
        late = store.listen(["queue/late"])
        await eventually(lambda: second.calls.count("listen") == 1)
        for listener, queue in ((early, "early"), (late, "late")):
            await listener.wait(5.0)
            await insert(other, new_job(queue=queue))
            await asyncio.wait_for(listener.wait(60.0), 90)
            listener.close()


async def test_one_stream_has_the_hints_for_all_listeners(serving, open_at):
    store, other = await open_at(serving.url), await open_at(serving.url)
    keeper = store.listen(["queue/never"])
    await keeper.wait(5.0)
    await insert(other, *(new_job(f"{n}") for n in range(30)))
    listeners = [store.listen([f"job/{n}"]) for n in range(30)]
    for listener in listeners:
        await listener.wait(5.0)  # they listen
    for record in await claim(other, limit=30):
        await other.write(Batch(settles=[succeeded(record)]))
    for listener in listeners:
        await asyncio.wait_for(listener.wait(60.0), 90)
        listener.close()
    keeper.close()
    assert serving.calls.count("listen") == 1
    assert serving.calls.count("topics") < 10


# -- looking


async def test_doctor_reports_reach_version_token_and_latency(serve, monkeypatch):
    server = await serve(roles={SECRET: frozenset({"work", "read"})}, sweeps=True)
    monkeypatch.setenv("HOLDFAST_TOKEN", SECRET)
    store = open_store(server.url, SystemClock())
    assert isinstance(store, Examining)
    words = "\n".join(finding.what for finding in await store.examine())
    for word in ("it uses a sqlite store", "the server is Holdfast", "expired leases", "read, work", "ms"):
        assert word in words
    monkeypatch.setenv("HOLDFAST_TOKEN", "wrong")
    [finding] = await open_store(server.url, SystemClock()).examine()
    assert not finding.fine
    assert "token" in finding.what


async def test_features_are_the_stores_except_local_ones(serve, open_at, tmp_path):
    assert (await open_at((await serve()).url)).features == {"durable", "multi_process"}
    other = await serve(f"sqlite:///{tmp_path}/other.db", sweeps=True)
    assert (await open_at(other.url)).features == {"durable", "multi_process", "sweeps"}


async def test_a_server_without_tls_is_reported_as_such():
    async def answer(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable, match="does not use TLS: write http://"):
            await open_store(f"https://127.0.0.1:{port}", SystemClock()).open()
