"""The client of the HTTP run: requests written by hand on plain connections, so that it costs less than a server."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, cast

import uvloop

from . import child

HELLO = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b'{"type":"noop","payload":{"to":"somebody@example.com","number":42}}'
SUBMIT = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nIdempotency-Key: bench-%%d\r\n"
    b"Content-Length: %d\r\n\r\n%s"
) % (len(BODY), BODY)

BATCH = 1000


def request(what: str, numbers: itertools.count[int]) -> bytes:
    """One request; a batch is made in Python, so it is made before it is sent."""
    if what == "hello":
        return HELLO
    if what == "holdfast":
        return SUBMIT % next(numbers)
    job = b'{"key":"bench-%d",' + BODY[1:]
    jobs = b'{"jobs":[%s]}' % b",".join(job % next(numbers) for _ in range(BATCH))
    head = b"POST /v1/jobs/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(jobs), jobs)


class Client(asyncio.Protocol):
    """One connection that sends the next request when it has the answer to the last."""

    def __init__(self, what: str, numbers: itertools.count[int]) -> None:
        self._what = what
        self._numbers = numbers
        self._buffer = b""

    def prepare(self, count: int) -> None:
        """So many requests to come; batches are made now."""
        self.done = asyncio.get_running_loop().create_future()
        self.left = count
        self._made = [request("batch", self._numbers) for _ in range(count)] if self._what == "batch" else []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        self._transport.write(self._made.pop() if self._made else request(self._what, self._numbers))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        if head[9:12] not in (b"200", b"201") or b'"problem"' in body:
            self.done.set_exception(RuntimeError(self._buffer.decode()))
            return
        self._buffer = b""
        self.left -= 1
        if self.left > 0:
            self.send()
        else:
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


def load(port: int, what: str, count: int, connections: int) -> dict[str, Any]:
    return uvloop.run(_load(port, what, count, connections))


async def _load(port: int, what: str, count: int, connections: int) -> dict[str, Any]:
    loop, numbers = asyncio.get_running_loop(), itertools.count()
    warm_up, each = max(1, count // connections // 10), count // connections
    clients: list[Client] = []
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: Client(what, numbers), "127.0.0.1", port)
        client.prepare(warm_up)
        clients.append(client)
    await _run(clients)
    for client in clients:
        client.prepare(each)
    child.wait_for_go()
    start = time.perf_counter()
    await _run(clients)
    return {"seconds": time.perf_counter() - start, "jobs": each * connections * (BATCH if what == "batch" else 1)}


async def _run(clients: list[Client]) -> None:
    for client in clients:
        client.send()
    await asyncio.gather(*(client.done for client in clients))


if __name__ == "__main__":
    child.serve({"load": load})
