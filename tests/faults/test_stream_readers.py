"""A stream of 2,000 chunks, read live by three clients of a server in another process, on every store."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from support.stores import STORES

from holdfast import Holdfast
from support.http import Client
from support.served import Served
from support.stream_readers import Reader, counting, expected
from support.workers import working


@pytest.mark.extended
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", STORES)
async def test_three_readers_of_which_one_reconnects_get_2000_chunks(kind, tmp_path):
    """At 50 chunks a second, for as long as a real answer takes."""
    url = STORES[kind](tmp_path)
    served = await asyncio.to_thread(Served(url, tmp_path).start)
    try:
        async with Holdfast(url) as app, aiohttp.ClientSession() as session:
            http = Client(served.url, session)
            handle = await counting(app).enqueue(2000, 0.02)
            readers = [Reader(http, handle.id), Reader(http, handle.id), Reader(http, handle.id, drops=300)]
            reading = asyncio.gather(*(reader.read() for reader in readers))
            async with working(app):
                assert await asyncio.wait_for(reading, 150) == [expected(2000)] * 3
            assert readers[0].chunks == readers[1].chunks == readers[2].chunks
            assert [reader.connections for reader in readers] == [1, 1, 7]
    finally:
        await asyncio.to_thread(served.kill)
