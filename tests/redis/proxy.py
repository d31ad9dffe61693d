"""A proxy that counts commands, and can be cut at any of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

import hiredis

from holdfast.store.redis.scripts import script, write_script

_HEARTBEAT = script("heartbeat")
_CLAIM = write_script("claim")


class Proxy:
    """Stands between clients and a server. `cut_at` is the number of the command with which the client dies.

    `after_effect`: that command still reaches the server, and its answer is lost; else it never arrives. From then on
    the line is dead and takes no new connection, until `mend()`. With `hold_claims()`, a connection that carries a
    claim delivers nothing from then on, until `let_go()`.
    """

    def __init__(
        self, port: int, *, cut_at: int | None = None, after_effect: bool = False, only: bytes = b"EVAL"
    ) -> None:
        self.target = port
        self.cut_at = cut_at
        self.after_effect = after_effect
        self.only = only
        self.commands = 0
        self.dead = False
        self.port = 0
        self.heartbeats = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._held: set[asyncio.StreamWriter] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self.dead = True
        for writer in list(self._writers):
            writer.transport.abort()

    def mend(self) -> None:
        self.dead, self.cut_at = False, None

    def hold_claims(self) -> None:
        self._flowing.clear()

    def let_go(self) -> None:
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.dead:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        self._tasks.add(task)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, up_writer}
        back = asyncio.create_task(self._pump_back(up_reader, writer))
        try:
            await self._pump_there(reader, up_writer, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            back.cancel()
            for each in (writer, up_writer):
                self._writers.discard(each)
                each.close()
            await asyncio.gather(back, return_exceptions=True)
            self._tasks.discard(task)

    async def _pump_there(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        parser = hiredis.Reader()
        while data := await reader.read(1 << 20):
            parser.feed(data)
            while (command := parser.gets()) is not False:
                if command[0].startswith(self.only):
                    self.commands += 1
                    self.heartbeats += command[1] in (_HEARTBEAT.sha, _HEARTBEAT.text)
                    if command[1] in (_CLAIM.sha, _CLAIM.text) and not self._flowing.is_set():
                        self._held.add(back)
                        command[:2] = [b"EVAL", _CLAIM.text]  # else its first answer might be NOSCRIPT
                if self.commands == self.cut_at and not self.dead:
                    if self.after_effect:
                        writer.write(hiredis.pack_command(tuple(command)))
                        with contextlib.suppress(OSError):
                            await writer.drain()
                        await asyncio.sleep(0.01)
                    self.cut()
                    return
                writer.write(hiredis.pack_command(tuple(command)))

    async def _pump_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.cut_at is not None and self.commands >= self.cut_at and self.after_effect:
                    continue  # the answer is lost
                if writer in self._held:
                    await self._flowing.wait()
                writer.write(data)
