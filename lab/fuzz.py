"""`python -m lab fuzz`: messages to the store API over HTTP that a token allows and no Holdfast would send.

A server, a worker beside it and a worker behind it run all the while, with jobs of another client. No answer is a 500,
nobody stops, and the jobs of others end as they should.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from holdfast import Holdfast, Worker
from holdfast.app import parts_of
from holdfast.core.job import State
from holdfast.http import asgi, tokens
from holdfast.http.serve import Server, bind
from holdfast.store import rpc as wire

ROLES = (("read",), ("submit",), ("work",), ("operate",), ("work", "operate"))
SENDERS = (*ROLES, ("work",), ("work", "operate"), ("work", "operate"))
"""The role of each message: most of the store API needs `work`."""
FUZZ = "fuzz"
"""The queue of the jobs that are sent; others are not touched by what is sent well-formed."""
NEIGHBOURS = 40
"""Jobs of another client, enqueued on the way."""
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.5, -1e300, 1e300, 1e308, "", " ", "a\0b", "é",
    "\ud7ff", "x" * 600, "fuzz", "queued", "running", "dead", "shell", "os:system", "flow", "holdfast.call", "../..",
    "%00", "null", "[" * 3000, [], {}, [[]], [None], [[[[[[]]]]]], {"": ""}, {"a": {"b": "c\0"}}, "e30=", "/w==", "!!!",
    "2026-01-01T00:00:00Z", {"name": "l", "concurrency": 1, "interval": 1, "burst": 1, "weight": 1},
)  # fmt: skip


BYTES = ("extra", "payload", "progress", "checkpoint")
GARBAGE = (
    b"", b"\xff", b"{", b"null", b"[1]", b'{"flow": 5}', b'{"flow": "x", "allow_unfinished": -1}',
    b'{"after": [[0, "fail"]]}',
    b'{"after": [[-1, "x"]]}', b'{"expires_at": -1}', b'{"expires_in": 1e300}', b'{"holes": true}', b"[" * 3000,
    b'{"$steps": [{}]}', b'{"command": "id"}', b'{"a": NaN}',
)  # fmt: skip
"""Bytes that are decoded by the reader of the job."""


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Messages:
    """Messages by chance: a sound one, of which some parts are changed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.sent: list[str] = []
        """Ids of the jobs that were sent, as far as they were sound."""

    def store_call(self) -> tuple[str, bytes]:
        """A method of the store API, and its body."""
        chance = self._chance
        method = chance.choice(
            ("write",) * 12
            + ("heartbeat", "leave", "expired", "tidy", "get", "find", "output", "stats", "transitions")
            + ("stats_by_minute",)
            + ("holders", "records", "put_record", "now", "hello", "recall", "topics")
        )  # fmt: skip
        arguments = self._arguments(method)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            arguments = self._changed(arguments)
        body = json.dumps(arguments).encode()
        if chance.random() < 0.05:
            at = chance.randrange(len(body) + 1)
            body = body[:at] + os.urandom(chance.randrange(4)) + body[at + chance.randrange(3) :]
        return f"{wire.PATH}/{method}", body

    def call(self) -> tuple[str, str, bytes]:
        """A method, a path of the API for people's programs, and a body."""
        chance, id = self._chance, self._id()
        method, path, body = chance.choice(
            (
                ("POST", "/v1/jobs", {"type": "noop", "payload": {"a": 1}, "queue": FUZZ, "tags": ["x"], "delay": 1}),
                ("POST", "/v1/jobs/batch", {"jobs": [{"type": "noop", "payload": {}, "key": id, "queue": FUZZ}]}),
                ("POST", "/v1/claims", {"queues": [FUZZ], "limit": 1, "lease": 5}),
                ("GET", f"/v1/jobs/{id}", None),
                ("POST", f"/v1/jobs/{id}/cancel", None),
                ("POST", f"/v1/jobs/{id}/retry", None),
                ("DELETE", f"/v1/jobs/{id}", None),
                ("PUT", f"/v1/schedules/{id}", {"type": "noop", "payload": {}, "every": 3600, "queue": FUZZ}),
                ("GET", f"/v1/jobs?queue={FUZZ}&limit=50", None),
            )
        )
        for _ in range(chance.choice((0, 1, 1, 2)) if body is not None else 0):
            body = self._changed(body)
        return method, path, b"" if body is None else json.dumps(body).encode()

    def _id(self) -> str:
        if self.sent and self._chance.random() < 0.7:
            return self._chance.choice(self.sent[-200:])
        return f"{FUZZ}-{self._chance.getrandbits(40)}"

    def _arguments(self, method: str) -> list[Any]:
        chance = self._chance
        holder = {"id": f"{FUZZ}:1:{chance.randrange(5)}", "lease": 5.0, "node": FUZZ, "pid": 1, "queues": [FUZZ]}
        arguments: dict[str, list[Any]] = {
            "write": [self._batch(holder)],
            "heartbeat": [[holder]],
            "leave": [[holder["id"]]],
            "expired": [10, holder["id"]],
            "tidy": [10],
            "get": [[self._id(), self._id()]],
            "find": [{"queue": FUZZ}, None, 50],
            "output": [self._id(), 0, 100],
            "transitions": [None, 10],
            "minutes": [0],
            "records": [chance.choices((FUZZ, "schedule", "signal", "ended", "task_pause", "pause"), k=2)],
            "put_record": [chance.choice((FUZZ, "schedule", "signal", "signal:x", "ended", "flow:x")), self._id(),
                           _b64(chance.choice((b"{}", b"5", b"\xff", b"[" * 3000))), chance.choice((None, 0, 1))],
            "topics": [{"stream": FUZZ, "add": ["queue/x"], "remove": []}],
        }  # fmt: skip
        return arguments.get(method, [])

    def _batch(self, holder: dict[str, Any]) -> dict[str, Any]:
        chance, id = self._chance, self._id()
        claim = {"id": id, "seq": chance.randrange(100), "fence": chance.randrange(3), "token": 1}
        kind = chance.choice(("inserts", "inserts", "inserts", "notes", "settles", "changes", "asks"))
        if kind == "inserts":
            id = f"{FUZZ}-{chance.getrandbits(40)}"
            self.sent.append(id)
            one: Any = {
                "id": id, "task": chance.choice(("noop", "add", "unknown")), "queue": FUZZ, "payload": _b64(b"{}"),
                "codec": "json", "priority": 0, "delay": 0.0, "max_attempts": 1, "timeout": 5.0, "key": None,
                "fingerprint": "f", "nonce": 1, "max_depth": None, "tags": ["t"], "meta": {"m": 1}, "window": 0.0,
                "retry": {"base": 1.0, "factor": 1.0, "jitter": 0.0, "cap": 1.0}, "unique": "", "waiting_for": None,
                "limit_key": chance.choice((None, {"name": f"{FUZZ}-limit_key", "concurrency": 2, "weight": 1})),
                "extra": chance.choice((None, _b64(b'{"expires_in": 5.0}'), _b64(b'{"after": [[0, "fail"]]}'))),
            }  # fmt: skip
        elif kind == "notes":
            one = {
                **claim,
                "progress": _b64(b"{}"),
                "checkpoint": _b64(b"1"),
                "saves": 1,
                "meta": {"a": 1},
                "rest": 0.1,
            }
        elif kind == "settles":
            one = {**claim, "nonce": 1, "state": "succeeded", "outcome": "succeeded", "attempt": 1, "keep": 60.0}
        elif kind == "changes":
            patch = {"state": "queued", "delay": 0.0, "meta": {"b": 2}, "payload": _b64(b"{}"), "history": []}
            states = [state.value for state in State]
            one = {
                "id": id,
                "expected_state": chance.choice(states),
                "expected_fence": 0,
                "patch": chance.choice((None, patch)),
            }
        else:
            one = {"holder": holder, "queues": [FUZZ], "limit": 2, "token": chance.getrandbits(60), "tasks": None}
        return {kind: [one]}

    def _changed(self, value: Any) -> Any:
        """The same with one part, somewhere in it, replaced, left out or added."""
        chance = self._chance
        if isinstance(value, list) and value and chance.random() < 0.9:
            at = chance.randrange(len(value))
            return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        if isinstance(value, dict) and value and chance.random() < 0.95:
            name = chance.choice(sorted(value))
            if chance.random() < 0.05:
                return {key: kept for key, kept in value.items() if key != name}
            if name in ("queue", "queues", "id"):  # what is sent well-formed stays among its own
                return value
            if name in BYTES:
                return {**value, name: _b64(chance.choice(GARBAGE))}
            return {**value, name: self._changed(value[name])}
        return chance.choice(HOSTILE)


class Findings(msgspec.Struct):
    """What a run has seen."""

    messages: int = 0
    statuses: Counter[int] = msgspec.field(default_factory=Counter)
    wrong: list[str] = []

    def __str__(self) -> str:
        answers = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        return f"{self.messages} messages, answered {answers}; {len(self.wrong)} wrong"


async def run(count: int, seed: int, url: str | None = None) -> Findings:
    """Send so many messages, by each role, round-robin."""
    found = Findings()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-fuzz-"))
        url = url or f"sqlite:///{folder}/jobs.db?synchronous=normal"
        served = await stack.enter_async_context(Holdfast(url))
        tokened = {roles: await tokens.create(parts_of(served).records, roles) for roles in ROLES}
        address = await stack.enter_async_context(_serving(served))
        local, remote = Holdfast(url, max_attempts=1), Holdfast(f"{address}?token_file={_kept(folder, tokened)}")
        workers: list[tuple[Worker, asyncio.Task[None]]] = []
        for app in (local, remote):
            app.task(_add, name="add")
            await stack.enter_async_context(app)
            worker = Worker(app, queues=["default", FUZZ], concurrency=4, grace=5.0)
            workers.append((worker, asyncio.create_task(worker.run())))
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def post(
            roles: tuple[str, ...], method: str, path: str, body: bytes, headers: dict[str, str]
        ) -> tuple[int, str]:
            known = {"Authorization": f"Bearer {tokened[roles]}", "Content-Type": "application/json"}
            async with session.request(method, address + path, data=body, headers=headers | known) as answer:
                return answer.status, await answer.text()

        await _send(found, count, Messages(random.Random(seed)), local, post)
        for worker, running in workers:
            if running.done():
                found.wrong.append(f"a worker has stopped: {running.exception() if not running.cancelled() else ''}")
            worker.stop()
        await asyncio.wait([running for _, running in workers], timeout=60)
    return found


async def _send(
    found: Findings,
    count: int,
    messages: Messages,
    neighbour: Holdfast,
    post: Callable[..., Awaitable[tuple[int, str]]],
) -> None:
    handles: list[Any] = []
    for number in range(count):
        if number % max(1, count // NEIGHBOURS) == 0:
            handles.append(await neighbour.enqueue("add", number, 1))
        roles = SENDERS[number % len(SENDERS)]
        method, path, body = messages.call() if number % 4 == 0 else ("POST", *messages.store_call())
        headers = {
            "Idempotency-Key": f"k{number}", wire.PROTOCOL_HEADER: str(wire.PROTOCOL), wire.REQUEST_HEADER: f"r{number}"
        }  # fmt: skip
        status, text = await post(roles, method, path, body, headers)
        found.messages += 1
        found.statuses[status] += 1
        if status == 500:  # 503 and 504 are said on purpose
            found.wrong.append(f"{roles} {method} {path} {body[:300]!r}: {status} {text[:300]}")
    for at, handle in enumerate(handles):
        number = at * max(1, count // NEIGHBOURS)
        try:
            if (result := await handle.result(timeout=60)) != number + 1:
                found.wrong.append(f"job {handle.id} of another client ended with {result!r}")
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            found.wrong.append(f"job {handle.id} of another client: {type(error).__name__}: {error}")
    jobs, cursor = 0, None
    while True:  # everything that was stored can be listed and shown
        page = await neighbour.jobs(limit=1000, cursor=cursor)
        jobs += len(page.jobs)
        if (cursor := page.cursor) is None:
            break
    await neighbour.stats()
    await neighbour.bulk.recover()


async def _add(a: int, b: int) -> int:
    return a + b


def _kept(folder: str, tokened: dict[tuple[str, ...], str]) -> str:
    path = Path(folder) / "token"
    path.write_text(tokened["work", "operate"])
    path.chmod(0o600)
    return str(path)


@asynccontextmanager
async def _serving(app: Holdfast) -> AsyncIterator[str]:
    """The service on a free port of loopback; its address."""
    with bind("127.0.0.1", 0) as bound:
        started = asyncio.get_running_loop().create_future()
        server = Server(asgi(app), started.set_result, 5)
        running = asyncio.create_task(server.serve([bound]))
        await asyncio.wait([started, running], return_when=asyncio.FIRST_COMPLETED)
        try:
            yield started.result()
        finally:
            server.should_exit = True
            await asyncio.wait_for(running, 20)


def command(count: int, seed: int, url: str | None) -> int:
    """Run it, and say what was found."""
    found = asyncio.run(run(count, seed, url))
    print(f"seed {seed}: {found}")
    for each in found.wrong[:20]:
        print(" ", each)
    return 1 if found.wrong else 0
