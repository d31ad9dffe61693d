"""A proxy that loses requests on their way to the server, or answers on their way back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Self


class Cutter:
    """A proxy between clients and a server, request by request.

    `lose_at` is the number of the call (of those in `only`) that is lost: with `after`, the server makes it and its
    answer is lost; else it never arrives. `forever`: from then on the line is dead, until `mend()`. With
    `hold_claims()`, no write is answered until `let_go()`.
    """

    def __init__(
        self,
        port: int,
        *,
        lose_at: int | None = None,
        after: bool = False,
        forever: bool = False,
        only: tuple[str, ...] = ("write", "heartbeat", "leave", "tidy", "put_record"),
    ) -> None:
        self.target = port
        self.lose_at, self.after, self.forever, self.only = lose_at, after, forever, only
        self.seen: Counter[str] = Counter()
        """Calls so far, by name."""
        self.calls = 0
        self.dead = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.elsewhere: int | None = None
        """The port for connections after a loss, as a balancer may choose another server."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._cut_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lose_next(self, *, after: bool) -> None:
        self.lose_at, self.after = self.calls + 1, after

    @property
    def heartbeats(self) -> int:
        return self.seen["heartbeat"]

    def hold_claims(self) -> None:
        self._flowing.clear()

    def let_go(self) -> None:
        self._flowing.set()

    def mend(self) -> None:
        self.dead, self.lose_at = False, None

    def _cut_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        up_reader = up_writer = None
        self._writers.add(writer)
        try:
            if self.dead:
                return
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(up_writer)
            while await self._exchange(reader, writer, up_reader, up_writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, up_writer):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()
            self._tasks.discard(task)

    async def _exchange(self, reader, writer, up_reader, up_writer) -> bool:
        head, body = await _message(reader)
        name = head.split(b" ", 2)[1].rpartition(b"/")[2].decode()
        self.seen[name] += 1
        lose = False
        if name in self.only:
            self.calls += 1
            lose = self.calls == self.lose_at
        if lose and not self.after:
            self._lost()
            return False
        up_writer.write(head + body)
        if name == "listen":
            while data := await up_reader.read(1 << 16):
                writer.write(data)
            return False
        head, body = await _message(up_reader)
        if lose:
            self._lost()
            return False
        if name == "write":
            await self._flowing.wait()
        writer.write(head + body)
        await writer.drain()
        return True

    def _lost(self) -> None:
        self.target = self.elsewhere or self.target
        if self.forever:
            self.dead = True
            self._cut_all()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    with contextlib.suppress(ValueError):
        return head, await reader.readexactly(length)
    return head, b""
