"""Readers of a job's stream over HTTP, and a task that writes one."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

from holdfast import Context, Holdfast

from .http import Client


class Reader:
    """Reads the stream of a job, and reconnects after `drops` chunks, as browsers do."""

    def __init__(self, http: Client, id: str, drops: int = 0) -> None:
        self.http = http
        self.id = id
        self.drops = drops
        self.chunks: list[dict] = []
        self.connections = 0
        self.end: dict | None = None

    @asynccontextmanager
    async def connected(self, query: str = ""):
        headers = {"Last-Event-ID": str(self.chunks[-1]["position"])} if self.chunks else {}
        self.connections += 1
        url = f"{self.http.url}/v1/jobs/{self.id}/stream{query}"
        async with self.http.session.get(url, headers=headers, timeout=None) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            yield self._events(answer)

    async def _events(self, answer):
        name, id, data = "", "", None
        async for line in answer.content:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "id":
                id = value
            elif field == "data":
                data = json.loads(value)
            elif not field and name:
                if name == "chunk":
                    assert id == str(data["position"])
                yield name, data
                name = ""

    async def read(self, query: str = "") -> list:
        """The values of all chunks, until the job has ended."""
        while self.end is None:
            async with self.connected(query) as events:
                async for name, data in events:
                    if name == "end":
                        self.end = data
                        break
                    self.chunks.append(data)
                    if self.drops and len(self.chunks) % self.drops == 0:
                        break
                else:
                    raise AssertionError("the stream ended without its last event")
        return [chunk["value"] for chunk in self.chunks]


def counting(app: Holdfast):
    @app.task
    async def count(ctx: Context, number: int, pause: float) -> None:
        begun = asyncio.get_running_loop().time()
        for n in range(number):
            await ctx.emit({"n": n, "text": "a\nb"})
            await asyncio.sleep(begun + (n + 1) * pause - asyncio.get_running_loop().time())

    return count


def expected(number: int) -> list:
    return [{"n": n, "text": "a\nb"} for n in range(number)]
