"""One request and its answer: what a handler is given, and what it gives back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from ..core.hosts import subnet
from . import limits
from .auth import Door, WrongToken
from .problems import CONTENT_TYPE, TOO_LARGE, WRONG_TYPE, Refused
from .tokens import Access

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..core.operations import Transitions
    from ..observe.metrics import Depths, Metrics
    from ..parts import Parts
    from .budget import Budget
    from .job_policy import JobPolicy

T = TypeVar("T")
JSON = b"application/json"
FOLLOWED = "holdfast.followed"
"""Where a scope says that another request stands behind this one, on the same connection."""
ADMITTED = "holdfast.admitted"
"""Where a scope has what its connection wants to have called once its token is known to be valid."""
REFUSED = "holdfast.refused"
"""Where a scope says that its token is wrong, and that its answer only waits."""
SAFE = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""On every answer: nothing of a job is kept by a cache, or taken for a page."""
encode = msgspec.json.Encoder(enc_hook=str).encode


class ClientGone(Exception):
    """Nobody waits for an answer any more."""


class Answer:
    """A whole answer."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, status: int, body: bytes, content_type: bytes = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.headers: list[tuple[bytes, bytes]] = [*SAFE, (b"content-length", b"%d" % len(body))]
        if status != 204:
            self.headers.append((b"content-type", content_type))
        self.headers += _encoded(headers)

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


class Stream:
    """An answer that is sent piece by piece; a client that does not read is cut off."""

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
        """Called when it is over, also where no piece of it was ever wanted."""

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
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]


def json(value: Any, status: int = 200, **headers: str) -> Answer:
    """A value as JSON."""
    return Answer(status, encode(value), headers={name.replace("_", "-"): text for name, text in headers.items()})


def nothing() -> Answer:
    """Done, and there is nothing to say."""
    return Answer(204, b"")


def problem(refused: Refused) -> Answer:
    """A problem document."""
    return Answer(refused.kind.status, encode(refused.problem), CONTENT_TYPE, refused.headers)


class TransitionsFeed(Protocol):
    """The moves of jobs, looked for once for all streams."""

    def after(self, cursor: str) -> Coroutine[Any, Any, Transitions]:
        """What came after a moment, as soon as something has."""
        ...


class Shared(Protocol):
    """What all requests share: the service, as far as they ask anything of it."""

    app: Holdfast
    parts: Parts
    policy: JobPolicy
    door: Door
    metrics: Metrics
    depths: Depths
    bodies: Budget
    stopping: asyncio.Event
    streams: int
    """Streams of events that are open."""
    waiting: int
    """Claims that wait for jobs."""

    @property
    def feed(self) -> TransitionsFeed:
        """The moves of jobs."""
        ...

    @property
    def extra(self) -> Sequence[Any]:
        """Routes that are no part of the API."""
        ...

    @property
    def openapi(self) -> bytes:
        """The description of the API, as JSON."""
        ...

    @property
    def body_limit(self) -> int:
        """Bytes of a body."""
        ...

    def stream_ended(self) -> None:
        """One stream of events less."""
        ...


class Call:
    """A request that has been let in."""

    __slots__ = ("_by_name", "_held", "_receive", "access", "headers", "left", "scope", "service")

    def __init__(self, service: Shared, scope: Scope, receive: Receive) -> None:
        self.service = service
        self.scope = scope
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._by_name = dict(self.headers)
        self.access = Access(frozenset())
        """What the sender may do; nothing, until it is admitted."""
        self.left = False
        """The client was seen to go."""
        self._receive = receive
        self._held = 0
        """Bytes of the server's budget that its body has taken."""

    @property
    def app(self) -> Holdfast:
        """The app that is served."""
        return self.service.app

    @property
    def parts(self) -> Parts:
        """What it is made of."""
        return self.service.parts

    @property
    def roles(self) -> frozenset[str]:
        """The roles of whoever sends it."""
        return self.access.roles

    async def admit(self) -> None:
        """Let its sender in, or refuse it; a wrong token is told in the log, and may have to wait for its answer."""
        door = self.service.door
        try:
            self.access = await door.admit(self.headers)
        except WrongToken:
            client, self.scope[REFUSED] = self.scope.get("client"), True
            await door.failures.throttle(subnet(client[0]) if client else "an unknown address")
            raise
        if (admitted := self.scope.get(ADMITTED)) is not None:
            admitted()

    def header(self, wanted: bytes) -> bytes | None:
        """A header's value; of several, all, with commas between."""
        if len(self._by_name) == len(self.headers):
            return self._by_name.get(wanted)
        found = [value for name, value in self.headers if name == wanted]
        return b", ".join(found) if found else None

    async def body(self, most: int) -> bytes:
        """The whole body; Refused where it is too large. How long it may take is the connection's business."""
        announced = self.header(b"content-length") or b""
        length = int(announced) if announced.isdigit() else 0
        if length > most + limits.DISCARDED or (length > most and self.header(b"expect")):
            raise _too_large(most, close=True)
        if limits.SMALL < length <= most:
            await self._hold(length)
        body, size, more = list[bytes](), 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            more = message.get("more_body", False)
            # A client that still sends may not see its answer: what is a little too much is read to its end.
            if size > most + limits.DISCARDED:
                raise _too_large(most, close=True)
            if max(size, length) > most:
                body.clear()
                continue
            if size > limits.SMALL and not self._held:  # it did not say how long it is
                await self._hold(most)
            body.append(piece)
        if size > most:
            raise _too_large(most)
        return body[0] if len(body) == 1 else b"".join(body)

    async def _hold(self, size: int) -> None:
        await self.service.bodies.take(self.access.token, size)
        self._held = size

    def let_go(self) -> None:
        """It is answered, and its body is needed no more."""
        if self._held:
            self.service.bodies.give_back(self.access.token, self._held)
            self._held = 0

    def check_json(self) -> None:
        """Refuse a body that does not say it is JSON: what a page of another site could send without asking."""
        kind = (self.header(b"content-type") or b"").partition(b";")[0].strip().lower()
        if kind != JSON:
            raise Refused(WRONG_TYPE, f"the body must be application/json, not {kind.decode('latin-1') or 'unnamed'!r}")

    async def while_wanted(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives; None where the server stops first, or another request follows.

        It is cancelled as soon as nobody waits for it.
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
        """Whether whoever sent it still has a role: its token may have been revoked since."""
        try:
            return role in (await self.service.door.admit(self.headers)).roles
        except Refused:
            return False

    @property
    def followed(self) -> bool:
        """Whether another request stands behind this one: its client cannot be heard to go, so it must not wait."""
        return FOLLOWED in self.scope

    async def gone(self) -> None:
        """Returns when the client has gone (`left`), or cannot be heard any more (`followed`).

        For when the body has been read, or is of no interest.
        """
        while not (self.left or self.followed):
            self.left = (await self._receive())["type"] == "http.disconnect"


def _too_large(most: int, *, close: bool = False) -> Refused:
    detail = f"a body may have {most} bytes here"
    return Refused(TOO_LARGE, detail, connection="close") if close else Refused(TOO_LARGE, detail)
