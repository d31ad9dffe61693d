"""A TCP proxy that can stop passing data without closing connections."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

import pytest

from holdfast import Holdfast
from holdfast.client import heartbeat

from .eventually import eventually
from .inside import session_of
from .workers import working


class SilentProxy:
    """Passes data to a server, and can silently drop it, like a router that has forgotten a connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._generation = 0
        self.connections = 0
        self.silent = False
        """Whether new connections get no data."""
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def stop_passing(self) -> None:
        """Open connections get no more data; new connections do."""
        self._generation += 1

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        generation = None if self.silent else self._generation
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        await asyncio.gather(self._pass_on(reader, back, generation), self._pass_on(there, writer, generation))

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, generation: int | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if generation == self._generation:
                    writer.write(data)
                    await writer.drain()
        writer.close()


async def check_lease_outlasts_silence(url: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose connections to the server at this port have all become silent keeps its lease, on new ones."""
    monkeypatch.setattr(heartbeat, "SHORTEST_PATIENCE", 0.5)
    entered, gate = asyncio.Event(), asyncio.Event()
    async with SilentProxy(port) as proxy, Holdfast(url, poll=0.2) as other, working(other, queues=["elsewhere"]):
        app = Holdfast(url.replace(f":{port}", f":{proxy.port}"), lease=7.5)

        @app.task
        async def long() -> str:
            entered.set()
            await gate.wait()
            return "kept"

        async with app, working(app):
            handle = await long.enqueue()
            await asyncio.wait_for(entered.wait(), 90)
            holder = (await session_of(other).store.get([handle.id]))[0].holder
            proxy.stop_passing()

            async def heartbeats() -> int:
                return next(
                    seen.heartbeat for seen in await session_of(other).store.holders() if seen.holder.id == holder
                )

            since = await heartbeats()

            async def far_beyond_the_lease() -> bool:
                return await heartbeats() > since + 4

            await eventually(far_beyond_the_lease)
            job = await other.job(handle.id)
            assert (job.state, job.attempt) == ("running", 1)
            proxy.cut()
            gate.set()
            assert await other.handle(handle.id).result(timeout=60) == "kept"
