"""Request and response objects of the HTTP handlers."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from ..core.hosts import subnet
from ..observe.actors import Actor, named
from . import limits
from .auth import Auth, WrongToken
from .problems import CONTENT_TYPE, TOO_LARGE, WRONG_TYPE, Refused
from .tokens import Access

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..client.errors import RefusedJobs
    from ..core.operations import Transitions
    from ..observe.metrics import Depths, Metrics
    from ..parts import Parts
    from .budget import Budget
    from .job_policy import JobPolicy

T = TypeVar("T")
JSON = b"application/json"
FOLLOWED = "holdfast.followed"
"""Scope key, set when another request follows on the same connection (pipelining)."""
ADMITTED = "holdfast.admitted"
"""Scope key of the connection's callback, called once the request's token is valid."""
ROLES = "holdfast.roles"
"""Scope key, set by an application that authenticates requests itself: the roles that the sender has at most."""
ACTOR = "holdfast.actor"
"""Scope key, set by an application that authenticates requests itself: the user's name, for the audit log."""
WHOLE = "holdfast.whole"
"""Scope key of the connection's callback that sends a complete answer at once, and returns whether it did."""
REFUSED = "holdfast.refused"
"""Scope key, set when the token is wrong and the answer is only delayed."""
CLIENT = b"holdfast-client"
"""Request header by which the dashboard names itself."""
SAFE = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers of every answer: not cached, not interpreted as a page."""
encode = msgspec.json.Encoder(enc_hook=str).encode


class ClientGone(Exception):
    """The client has disconnected."""


class Answer:
    """A complete response."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, status: int, body: bytes, content_type: bytes = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.headers: list[tuple[bytes, bytes]] = [*SAFE, (b"content-length", b"%d" % len(body))]
        if status != 204:
            self.headers.append((b"content-type", content_type))
        if headers:
            self.headers += _encoded(headers)

    def compress(self, accepted: bytes | None) -> None:
        """Compress a long JSON body with gzip, if the client's Accept-Encoding has it."""
        if len(self.body) < limits.COMPRESSED or (b"content-type", JSON) not in self.headers:
            return
        replaced = (b"content-length", b"%d" % len(self.body))
        self.headers.append((b"vary", b"accept-encoding"))
        if accepted is None or b"gzip" not in accepted or replaced not in self.headers:
            return
        self.body = gzip.compress(self.body, 1, mtime=0)
        self.headers.remove(replaced)
        self.headers += [(b"content-length", b"%d" % len(self.body)), (b"content-encoding", b"gzip")]

    async def send(self, send: Send) -> None:
        """Send it as any ASGI app does."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


class Stream:
    """A streamed response; a client that does not read for `UNREAD_SECONDS` is disconnected."""

    status = 200

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        content_type: bytes,
        ended: Callable[[], object] = lambda: None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._pieces = pieces
        self._headers = [*SAFE, (b"content-type", content_type), (b"x-accel-buffering", b"no"), *_encoded(headers)]
        self._ended = ended
        """Called when the stream ends, also if no piece was sent."""

    async def send(self, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": self._headers})
            async for piece in self._pieces:
                async with asyncio.timeout(limits.UNREAD_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            await self._pieces.aclose()
            self._ended()
        await send({"type": "http.response.body", "body": b""})


def _encoded(headers: Mapping[str, str] | None) -> list[tuple[bytes, bytes]]:
    found = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
    if any(not value.isprintable() for value in (headers or {}).values()):
        raise ValueError("a header has a line end or another control character")
    return found


def json(value: Any, status: int = 200) -> Answer:
    return Answer(status, encode(value))


def nothing() -> Answer:
    return Answer(204, b"")


def problem(refused: Refused) -> Answer:
    return Answer(refused.kind.status, encode(refused.problem), CONTENT_TYPE, refused.headers)


class TransitionsFeed(Protocol):
    """The transitions of jobs, read once for all streams."""

    def after(self, cursor: str) -> Coroutine[Any, Any, Transitions]: ...


class Shared(Protocol):
    """The state that all requests share: the part of `Service` that handlers use."""

    app: Holdfast
    parts: Parts
    policy: JobPolicy
    auth: Auth
    metrics: Metrics
    depths: Depths
    bodies: Budget
    stopping: asyncio.Event
    streams: int
    """Number of open event streams."""
    waiting: int
    """Number of claims waiting for jobs."""

    def refused(self) -> Coroutine[Any, Any, list[RefusedJobs]]: ...

    @property
    def feed(self) -> TransitionsFeed: ...

    @property
    def extra(self) -> Sequence[Any]: ...

    @property
    def openapi(self) -> bytes: ...

    @property
    def body_limit(self) -> int: ...

    def stream_ended(self) -> None: ...


class Call:
    """A request as handlers see it."""

    __slots__ = ("_receive", "_reserved", "access", "by_name", "headers", "left", "scope", "service")

    def __init__(self, service: Shared, scope: Scope, receive: Receive) -> None:
        self.service = service
        self.scope = scope
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.by_name = dict(self.headers)
        """Of a repeated header, the last value."""
        self.access = Access(frozenset())
        """What the sender may do; nothing before `admit`."""
        self.left = False
        """The client has disconnected."""
        self._receive = receive
        self._reserved = 0
        """Bytes of the server's budget reserved for its body."""

    @property
    def app(self) -> Holdfast:
        return self.service.app

    @property
    def parts(self) -> Parts:
        return self.service.parts

    @property
    def roles(self) -> frozenset[str]:
        return self.access.roles

    async def admit(self) -> None:
        """Authenticate the sender, or raise Refused; a wrong token is logged, and its answer may be delayed."""
        auth = self.service.auth
        try:
            self.access = await self._admitted()
        except WrongToken:
            client, self.scope[REFUSED] = self.scope.get("client"), True
            await auth.failures.throttle(subnet(client[0]) if client else "an unknown address")
            raise
        if (admitted := self.scope.get(ADMITTED)) is not None:
            admitted()

    def header(self, wanted: bytes) -> bytes | None:
        """A header's value; several are joined with commas."""
        if len(self.by_name) == len(self.headers):
            return self.by_name.get(wanted)
        found = [value for name, value in self.headers if name == wanted]
        return b", ".join(found) if found else None

    @property
    def who(self) -> str:
        """The sender, for logs: the user of the application, else the label or id of the token."""
        return self.scope.get(ACTOR) or self.access.who

    @property
    def actor(self) -> Actor:
        """The sender, for the audit log."""
        surface = "dashboard" if self.by_name.get(CLIENT) == b"dashboard" else "http"
        return named(self.who, surface)

    async def body(self, max_bytes: int) -> bytes:
        """The whole body; Refused if it is too large. The connection enforces the time limit."""
        announced = self.header(b"content-length") or b""
        length = int(announced) if announced.isdigit() else 0
        if length > max_bytes + limits.DISCARDED or (length > max_bytes and self.header(b"expect")):
            raise _too_large(max_bytes, close=True)
        if limits.SMALL < length <= max_bytes:
            await self._reserve(length)
        body, size, more = list[bytes](), 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            more = message.get("more_body", False)
            # A client that is still sending may not read the answer, so a slightly larger body is read to its end.
            if size > max_bytes + limits.DISCARDED:
                raise _too_large(max_bytes, close=True)
            if max(size, length) > max_bytes:
                body.clear()
                continue
            if size > limits.SMALL and not self._reserved:  # without content-length
                await self._reserve(max_bytes)
            body.append(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        return body[0] if len(body) == 1 else b"".join(body)

    async def _reserve(self, size: int) -> None:
        await self.service.bodies.take(self.access.token, size)
        self._reserved = size

    def release_body(self) -> None:
        """Release the body's bytes in the server's budget, after the answer."""
        if self._reserved:
            self.service.bodies.release(self.access.token, self._reserved)
            self._reserved = 0

    def check_json(self) -> None:
        """Refuse a body without content-type JSON: a page of another site can send other types without preflight."""
        kind = (self.header(b"content-type") or b"").partition(b";")[0].strip().lower()
        if kind != JSON:
            raise Refused(WRONG_TYPE, f"Content-Type must be application/json, not {kind.decode('latin-1')!r}")

    async def while_wanted(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None if the server stops first, or another request follows on the connection.

        `work` is cancelled when the client disconnects.
        """
        doing = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self.gone())
        stopping = asyncio.ensure_future(self.service.stopping.wait())
        try:
            await asyncio.wait([doing, gone, stopping], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            doing.cancel()
            with suppress(asyncio.CancelledError):
                return await doing
            if self.left:
                raise ClientGone
            return None
        finally:
            for task in (doing, gone, stopping):
                task.cancel()

    async def still_may(self, role: str) -> bool:
        """Whether the sender still has a role: its token may have been revoked since."""
        try:
            return role in (await self._admitted()).roles
        except Refused:
            return False

    async def _admitted(self) -> Access:
        access = await self.service.auth.admit(self.headers)
        given: frozenset[str] = self.scope.get(ROLES, access.roles)
        return access if given >= access.roles else msgspec.structs.replace(access, roles=access.roles & given)

    @property
    def followed(self) -> bool:
        """Whether another request follows on the connection: a disconnect cannot be seen, so it must not wait."""
        return FOLLOWED in self.scope

    async def gone(self) -> None:
        """Wait until the client disconnects (`left`), or that can no longer be seen (`followed`).

        Call it after the body was read, or if the body is not needed.
        """
        while not (self.left or self.followed):
            self.left = (await self._receive())["type"] == "http.disconnect"


def _too_large(max_bytes: int, *, close: bool = False) -> Refused:
    detail = f"the body is larger than this route allows ({max_bytes} bytes); nothing was done: send less"
    return Refused(TOO_LARGE, detail, connection="close") if close else Refused(TOO_LARGE, detail)
