"""The HTTP service for tests: on a real port of this process, or as the real command; and a client for either."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from holdfast import Holdfast
from holdfast.http import asgi
from holdfast.http.serve import Server, bind
from holdfast.http.service import Service

from .forks import fork_server
from .quick_server import QuickServer

START_LIMIT = 60.0


class QuickHoldfast(Server, QuickServer):
    """The real server, stopped without waits."""


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def problem(self) -> str:
        """The name of the problem type; fails where it is no problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        document = self.json
        assert document["status"] == self.status
        assert document["title"]
        assert document["detail"]
        return document["type"].removeprefix("urn:holdfast:problem:")


class Client:
    """Calls one server."""

    def __init__(self, url: str, session: aiohttp.ClientSession, token: str | None = None) -> None:
        self.url = url
        self.session = session
        self.token = token

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        data: bytes | None = None,
        token: str | None = "",
        **headers: str,
    ) -> Reply:
        """One request. Underscores in header names stand for hyphens; `token` overrides the client's own."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.token if token == "" else token
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        sending = io.BytesIO(data) if data is not None and len(data) > 1_000_000 else data
        async with self.session.request(method, self.url + path, data=sending, headers=sent) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def submit(self, task: str = "noop", payload: Any = None, key: str | None = None, **rest: Any) -> Reply:
        body = {"type": task, "payload": payload or {}, **rest}
        return await self("POST", "/v1/jobs", body, Idempotency_Key=key or os.urandom(8).hex())

    async def raw(self, data: bytes, limit: float = 10.0) -> bytes:
        """What comes back for these bytes, until the server closes or has answered one request."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data)
            async with asyncio.timeout(limit):
                return await _one_answer(reader)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _one_answer(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    length = next(
        (line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), b"0"
    )
    return head + await reader.readexactly(int(length))


@asynccontextmanager
async def serving(
    app: Holdfast | Service, host: str = "127.0.0.1", *, proxies: Sequence[str] = (), **options: Any
) -> AsyncIterator[Client]:
    """The service on a free port, on this loop."""
    service = app if isinstance(app, Service) else asgi(app, **options)
    with bind(host, 0) as bound:
        started = asyncio.get_running_loop().create_future()
        server = QuickHoldfast(service, started.set_result, 5, proxies)
        running = asyncio.create_task(server.serve([bound]))
        await asyncio.wait([started, running], return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            running.result()
        try:
            async with aiohttp.ClientSession() as session:
                client = Client(started.result(), session)
                client.service, client.server = service, server
                yield client
        finally:
            server.should_exit = True
            await asyncio.wait_for(running, 90)


class Served:
    """`holdfast serve` as a process of its own."""

    def __init__(self, folder: Path, url: str, *words: str, **env: str) -> None:
        self.log = folder / f"serve-{time.monotonic_ns()}.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with self.log.open("wb") as log:
            command = ["serve", "--url", url, "--port", "0", *words]
            self.process = fork_server().popen("holdfast", command, cwd=folder, env={**inherited, **env}, output=log)

    def address(self) -> str:
        """Where it serves, once it says so."""
        deadline = time.monotonic() + START_LIMIT
        while True:
            for line in self.output().splitlines():
                if line.startswith("Serving ") and " on http://" in line:
                    return line.rpartition(" on ")[2]
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.02)

    def output(self) -> str:
        return self.log.read_text()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(90)


@contextmanager
def served(folder: Path, url: str, *words: str, **env: str) -> Iterator[Served]:
    """`holdfast serve` for as long as the block lasts."""
    process = Served(folder, url, *words, **env)
    try:
        process.address()
        yield process
    finally:
        process.kill()
