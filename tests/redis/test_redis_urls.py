"""URLs of Redis stores, and the errors of wrong ones."""

import sys

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError, MissingExtra
from holdfast.core.url import split
from holdfast.store.open import open_store
from holdfast.store.redis.address import parse


def address(url: str):
    return parse(split(url))


def test_the_simplest_url_is_enough():
    plain = address("redis://localhost")
    assert (plain.nodes, plain.db, plain.prefix, plain.tls) == ((("localhost", 6379),), 0, "holdfast", False)
    assert address("redis://").nodes == (("localhost", 6379),)


def test_a_url_can_have_every_option():
    full = address("rediss://me:p%40ss@db.example:7000/4?prefix=mail&durability=fsync&timeout=3&verify=no")
    assert (full.username, full.password, full.db, full.tls, full.verify) == ("me", "p@ss", 4, True, False)
    assert (full.nodes, full.prefix, full.durability, full.timeout) == ((("db.example", 7000),), "mail", "fsync", 3.0)


def test_a_password_alone_needs_no_name():
    assert (address("redis://:secret@h").username, address("redis://:secret@h").password) == (None, "secret")


def test_an_address_of_ip_version_6_is_understood():
    assert address("redis://[::1]:7000").nodes == (("::1", 7000),)


def test_sentinels_and_clusters_have_several_hosts():
    sentinel = address("redis+sentinel://a,b:27000/mymaster/2?sentinel_password=x")
    assert (sentinel.nodes, sentinel.master, sentinel.db) == ((("a", 26379), ("b", 27000)), "mymaster", 2)
    assert address("redis+cluster://a:7000,b:7001").nodes == (("a", 7000), ("b", 7001))


def test_a_socket_has_a_path():
    assert address("unix:///run/redis.sock?db=2").path == "/run/redis.sock"
    assert address("unix:///run/redis.sock?db=2").db == 2


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://h/x", "database must be a number"),
        ("redis://h?durability=maybe", "durability= must be one of"),
        ("redis://h?prefix=", "prefix"),
        ("redis://h?prefix=a{b}", "braces"),
        ("redis://h?timeout=-1", "above 0"),
        ("redis://h?timeout=soon", "number of seconds"),
        ("redis://h:port", "HOST:PORT"),
        ("redis+sentinel://h", "mymaster"),
        ("redis+cluster://h/1", "database 0"),
        ("unix://", "socket"),
        ("redis://h?fsync=1", "unknown parameter fsync"),
        ("rediss://h?verify=perhaps", r"\?verify= must be"),
        ("redis+magic://h", "no store for"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason_of_it(url, reason):
    with pytest.raises(ConfigError, match=reason):
        open_store(url, SystemClock())


@pytest.mark.parametrize("url", ["redis://me:secret@h/x", "redis+sentinel://h?sentinel_password=secret"])
def test_a_password_is_never_shown(url):
    with pytest.raises(ConfigError) as reason:
        open_store(url, SystemClock())
    assert "secret" not in str(reason.value)


def test_an_address_does_not_show_its_password():
    assert "secret" not in str(address("redis://me:secret@h/3"))


def test_a_missing_driver_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("holdfast.store.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[redis\]"):
        open_store("redis://localhost", SystemClock())
