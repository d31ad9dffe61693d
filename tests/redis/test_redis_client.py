"""A Redis client of the user's own in the place of a URL: its settings are taken, its connections left alone."""

import pytest

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError
from holdfast.store.open import open_store
from holdfast.store.redis import url_of
from support.workers import working

blocking = pytest.importorskip("redis")
redis = pytest.importorskip("redis.asyncio")


def address_of(client, **options):
    return open_store(url_of(client, **options), SystemClock()).address


async def test_jobs_are_stored_on_the_clients_server(start_server):
    server = start_server(requirepass="secret", appendonly="yes")
    client = redis.Redis(port=server.port, password="secret", db=3)
    app = Holdfast(client)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app, working(app):
        handle = await double.enqueue(21)
        assert await handle.result(timeout=10) == 42
        assert await client.hexists("{holdfast}:ids", handle.id)  # the client goes on as it was
    assert await client.ping()
    await client.aclose()


async def test_a_unix_socket_is_taken(start_server, tmp_path, open_at):
    server = start_server(unixsocket=str(tmp_path / "s"))
    client = redis.Redis(unix_socket_path=str(tmp_path / "s"))
    store = await open_at(url_of(client, prefix="mail", durability="none"))
    await store.put_record("pause", "default", b"{}")
    assert server.keys("mail")
    await client.aclose()


def test_other_processes_get_the_same_url():
    """A supervisor opens the app's URL for itself."""
    app = Holdfast(redis.Redis(host="::1", port=7, username="me", password="p@/s", db=2))
    there = open_store(parts_of(app).url, SystemClock()).address
    assert (there.nodes, there.username, there.password, there.db) == ((("::1", 7),), "me", "p@/s", 2)


@pytest.mark.parametrize("library", [redis, blocking], ids=["asyncio", "blocking"])
def test_everything_that_a_url_can_say_is_taken(library):
    plain = address_of(library.Redis(host="h", port=7, db=2, username="me", password="pw"))
    assert (plain.nodes, plain.db, plain.username, plain.password, plain.tls) == ((("h", 7),), 2, "me", "pw", False)
    assert address_of(library.Redis()).nodes == (("localhost", 6379),)
    url = "rediss://me:pw@h:7/3?ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem"
    secure = address_of(library.from_url(url))
    assert (secure.tls, secure.ca, secure.cert, secure.key) == (True, "/ca.pem", "/c.pem", "/k.pem")
    assert (secure.nodes, secure.db, secure.verify) == ((("h", 7),), 3, True)
    assert not address_of(library.Redis(ssl=True, ssl_cert_reqs="none")).verify
    assert address_of(library.from_url("unix:///run/redis.sock?db=4")).path == "/run/redis.sock"


def test_sentinels_are_taken():
    sentinel = redis.sentinel.Sentinel([("a", 1), ("b", 2)], sentinel_kwargs={"password": "theirs"}, password="pw")
    watched = address_of(sentinel.master_for("mymaster", db=3))
    assert (watched.master, watched.nodes, watched.db) == ("mymaster", (("a", 1), ("b", 2)), 3)
    assert (watched.password, watched.sentinel_password) == ("pw", "theirs")
    with pytest.raises(ConfigError, match="master_for"):
        address_of(sentinel.slave_for("mymaster"))


async def test_a_cluster_client_is_refused_with_its_url():
    with pytest.raises(ConfigError, match=r"redis\+cluster://n1:7000"):
        Holdfast(redis.RedisCluster(host="n1", port=7000))


def test_what_only_the_client_could_do_is_refused_by_name():
    class Provider(blocking.CredentialProvider):
        def get_credentials(self):
            return "me", "secret"

    with pytest.raises(ConfigError, match="credential_provider") as raised:
        Holdfast(redis.Redis(credential_provider=Provider()))
    assert "secret" not in str(raised.value)
