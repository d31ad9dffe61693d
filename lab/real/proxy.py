"""A line to a server, of whatever protocol, that delays, cuts, and loses answers after the request was passed on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from random import Random


class Proxy:
    """Runs on a thread of its own. `trouble()` makes one thing go wrong on one connection that is in use."""

    def __init__(self, target: int, seed: int) -> None:
        self.target = target
        self.port = 0
        self.counts: Counter[str] = Counter()
        self._chance = Random(seed)
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        self._ready.wait()

    def trouble(self) -> None:
        """One connection: its next answer is lost and the line cut, or it is cut at once, or it is slow for a while."""
        self._loop.call_soon_threadsafe(self._trouble)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for connection in list(self._connections):
            connection.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _trouble(self) -> None:
        if not self._connections:
            return
        connections = sorted(self._connections, key=lambda one: -one.last)
        busy = connections[: max(1, len(connections) // 2)]
        connection = busy[self._chance.randrange(len(busy))]
        what = self._chance.random()
        if what < 0.8:
            connection.lose_answer = True
        elif what < 0.9:
            self.counts["connections cut"] += 1
            connection.cut()
        else:
            self.counts["slow lines"] += 1
            connection.delay = self._chance.uniform(0.01, 0.3)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = _Connection(self, writer, up[1])
        self._connections.add(connection)
        try:
            await asyncio.gather(connection.there(reader), connection.back(up[0]))
        finally:
            self._connections.discard(connection)
            connection.cut()


class _Connection:
    def __init__(self, proxy: Proxy, down: asyncio.StreamWriter, up: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._down = down
        self._up = up
        self._asked = False
        self.last = 0.0
        self.lose_answer = False
        self.delay = 0.0

    def cut(self) -> None:
        for writer in (self._down, self._up):
            writer.transport.abort()

    async def there(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self._asked = True
                self.last = self._proxy._loop.time()
                if self.delay:
                    delay, self.delay = self.delay, 0.0
                    await asyncio.sleep(delay)
                self._up.write(data)
                await self._up.drain()
        self.cut()

    async def back(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.lose_answer and self._asked:
                    # The server has done it, and nobody will hear of it.
                    self._proxy.counts["answers dropped"] += 1
                    break
                self._asked = False
                self._down.write(data)
                await self._down.drain()
        self.cut()
