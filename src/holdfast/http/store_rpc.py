"""The store protocol over HTTP, for `http://…` as a store: one path per method, on whatever store the app has.

Only Holdfast's own client calls these; they change with the protocol number, and are no part of the API.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.clock import fresh_secret
from ..core.errors import ConfigError, HoldfastError, InvalidJob, OutcomeUnknown, StoreUnavailable
from ..core.job import UNDECODABLE
from ..declarations import WORKER_WRITES
from ..store import rpc as wire
from ..store.protocol import Answers, Batch, Finding, Versioned
from ..store.worker_writes import Declarations, RecordWrite, WorkerWrites
from ..version import __version__
from . import limits, notifications, tokens
from .call import Answer, Call, ClientGone, Stream
from .endpoint import Endpoint
from .idempotency_cache import Recall
from .job_policy import JobPolicy
from .notifications import STREAMS_MOST, Hints
from .problems import CONTENT_TYPE
from .rpc_validation import CHECKS, check_batch, check_kinds, check_record

if TYPE_CHECKING:
    from ..parts import Parts

logger = logging.getLogger("holdfast.http")
ROLE, OPERATE = "work", "operate"
BODY_MOST = 64 * limits.MIB
"""Bytes of a batch; a client whose batch is larger sends its parts one by one."""
HEADERS = {wire.PROTOCOL_HEADER.lower(): str(wire.PROTOCOL)}
STATUSES: dict[type[Exception], int] = {
    StoreUnavailable: 503,
    OutcomeUnknown: 504,
    ConfigError: 400,
    InvalidJob: 422,
    ValueError: 422,
    OverflowError: 422,
}
"""How what a store raises is told; the nearest class counts, and anything else is 500."""
_encode = msgspec.json.Encoder().encode

Handler = Callable[[Call], Awaitable[Answer | Stream]]


class Seam:
    """The routes to one app's store. The server checks who is there, and that they have the role `work`.

    1. A batch goes through the app's own group commit: what several clients send shares commits.
    2. A request that must not be made twice has an id, and its answer is kept for a while (`recall.py`).
    3. What a worker does needs the role `work`; to change other people's jobs, pause, or set anything, `operate` too.
       Which records and changes are a worker's, and what else is to be checked of them, is `declared` by the services.
    4. `checks`: what comes is held to the same rules as what an app takes (`rpc_validation.py`).
    5. `sweeps`: clients are told to leave lost leases and retention to this server (`sweeper.py`).
    """

    def __init__(
        self,
        parts: Parts,
        *,
        sweeps: bool,
        policy: JobPolicy,
        declared: Sequence[WorkerWrites] = (*WORKER_WRITES, tokens.WRITES),
        checks: bool = True,
    ) -> None:
        self._parts = parts
        self._sweeps = sweeps
        self._policy = policy
        self._declared = Declarations(declared)
        self._checks = checks
        self._recall = Recall(parts.runtime.clock)
        self._hints = Hints(lambda topic: self._parts.session.store.listen([topic]))

    def endpoints(self) -> list[Endpoint]:
        """Entries for the server's route table."""
        handlers: dict[str, Handler] = {method.name: self._plain(method) for method in wire.PLAIN}
        handlers[wire.HELLO.name] = self._hello
        handlers[wire.WRITE.name] = self._method(wire.WRITE, self._write, self._worker_sends)
        handlers[wire.RECORDS.name] = self._method(wire.RECORDS, self._records)
        handlers[wire.PUT_RECORD.name] = self._method(wire.PUT_RECORD, self._put_record, self._worker_puts)
        handlers[wire.WARNINGS.name] = self._method(wire.WARNINGS, self._warnings)
        handlers[wire.RECALL] = self._recalled
        handlers[wire.LISTEN] = self._listen
        handlers[wire.TOPICS.name] = self._method(wire.TOPICS, self._change_topics)
        return [
            Endpoint("POST", f"{wire.PATH}/{name}", ROLE, _spoken(handler), {200: Any})
            for name, handler in handlers.items()
        ]

    # -- calls

    def _plain(self, method: wire.Method[Any]) -> Handler:
        check = CHECKS.get(method.name) if self._checks else None

        async def make(*arguments: Any) -> Any:
            if check is not None:
                check(*arguments)
            return await getattr(self._parts.session.store, method.name)(*arguments)

        return self._method(method, make)

    def _method(
        self,
        method: wire.Method[Any],
        make: Callable[..., Awaitable[Any]],
        permits: Callable[..., Awaitable[bool]] | None = None,
    ) -> Handler:
        """`permits`: whether a call with these arguments is a worker's, else it is an operator's."""
        decode = msgspec.json.Decoder(method.arguments).decode

        async def handle(call: Call) -> Answer:
            body = await call.body(BODY_MOST)
            if body.count(b",") > limits.VALUES:
                return _told(InvalidJob(f"the arguments of {method.name} have more than {limits.VALUES} values"))
            try:
                arguments = decode(body)
            except UNDECODABLE as error:
                return _told(InvalidJob(f"the arguments of {method.name} cannot be read: {error}"))
            if permits is not None and OPERATE not in call.roles and (no := await self._refusal(permits, arguments)):
                return no
            if method.kind != "once":
                return await self._made(make, arguments)
            request = call.header(wire.REQUEST_HEADER.lower().encode())
            if request is None:
                return _told(InvalidJob(f"{method.name} needs the header {wire.REQUEST_HEADER}"))
            return await self._recall.once(request.decode("latin-1"), lambda: self._made(make, arguments))

        return handle

    async def _refusal(self, permits: Callable[..., Awaitable[bool]], arguments: tuple[Any, ...]) -> Answer | None:
        """What is answered to somebody without the role `operate` who needs it."""
        try:
            await self._parts.runtime.open()
            if await permits(*arguments):
                return None
        except HoldfastError as error:
            return _told(error)
        return _told(ConfigError(f"this needs a token with the role {OPERATE!r} beside {ROLE!r}"))

    async def _made(self, make: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...] = ()) -> Answer:
        """A call's answer, or what it raised."""
        try:
            await self._parts.runtime.open()
            return Answer(200, _encode(await make(*arguments)), headers=HEADERS)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client raises it in its own place
            return _told(error)

    async def _write(self, batch: Batch) -> Answers:
        if self._checks:
            check_batch(batch, self._parts.session.settings.max_payload)
            await self._declared.check_inserts(self._parts.session.store, self._parts.session.entropy, batch.inserts)
        return await self._parts.session.commit.write(batch)

    async def _warnings(self) -> Sequence[Finding]:
        return await self._parts.session.health.warnings()

    async def _records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        if self._checks:
            check_kinds(kinds)
        for kind in kinds:
            await self._declared.of(kind).before_read(self._parts.session.store)
        return await self._parts.session.store.records(kinds)

    async def _put_record(self, kind: str, name: str, value: bytes | None, expect: int | None) -> bool:
        if self._checks:
            check_record(kind, name, value, expect, self._parts.session.settings.max_payload)
        declared = self._declared.of(kind)
        for job in await declared.check(self._parts.session.store, RecordWrite(kind, name, value, expect)):
            self._policy.check_job(job)
        written = await self._parts.records.put(kind, name, value, expect)  # which goes by new settings at once
        if declared.tells_end and written and value is not None:
            self._parts.session.commit.tell_of_end(name)
        return written

    async def _worker_sends(self, batch: Batch) -> bool:
        return self._declared.worker_changes(batch.changes)

    async def _worker_puts(self, kind: str, name: str, value: bytes | None, expect: int | None) -> bool:
        write = RecordWrite(kind, name, value, expect)
        return await self._declared.of(kind).worker(self._parts.session.store, write)

    async def _hello(self, call: Call) -> Answer:
        async def make() -> wire.Hello:
            store = self._parts.session.store
            features = {name for name in store.features if not name.startswith("transactional")}
            if self._sweeps:
                features.add("sweeps")
            return wire.Hello(__version__, store.name, tuple(sorted(features)), tuple(sorted(call.roles)))

        return await self._made(make)

    async def _recalled(self, call: Call) -> Answer:
        request = call.header(wire.REQUEST_HEADER.lower().encode()) or b""
        answer = await self._recall.again(request.decode("latin-1"))
        return answer or _told(OutcomeUnknown("the answer to this request is not known here (any more)"))

    # -- hints

    async def _listen(self, call: Call) -> Answer | Stream:
        body = await call.body(BODY_MOST)
        try:
            (topics,) = msgspec.json.decode(body, type=tuple[list[str]])
            await self._parts.runtime.open()
        except UNDECODABLE as error:
            return _told(InvalidJob(f"these are no topics: {error}"))
        except HoldfastError as error:
            return _told(error)
        if len(self._hints) >= STREAMS_MOST:  # nothing is awaited from here until it is counted
            return _told(StoreUnavailable(f"{STREAMS_MOST} streams of hints are open already"))
        stream = self._hints.open(fresh_secret(), topics)
        lines, ended = self._lines(call, stream), lambda: self._hints.close(stream)
        return Stream(lines, b"application/x-ndjson", ended, HEADERS)

    async def _lines(self, call: Call, stream: notifications.Stream) -> AsyncGenerator[bytes]:
        """The stream's name, then what rings, until the client or its token has gone or the server stops."""
        yield _encode(stream.name) + b"\n"
        with suppress(ClientGone):
            while (news := await call.while_wanted(stream.news())) is not None and await call.still_may(ROLE):
                yield news

    async def _change_topics(self, change: wire.Topics) -> None:
        if not self._hints.change(change.stream, change.add, change.remove):
            raise StoreUnavailable("there is no such stream of hints here (any more)")


def _spoken(handler: Handler) -> Handler:
    async def handle(call: Call) -> Answer | Stream:
        """One call of the store protocol, for Holdfast's own client."""
        spoken = call.header(wire.PROTOCOL_HEADER.lower().encode())
        if spoken == str(wire.PROTOCOL).encode():
            return await handler(call)
        theirs = "none" if spoken is None else spoken.decode("latin-1")[:20]
        return _told(
            ConfigError(
                f"this server is Holdfast {__version__} and speaks store protocol {wire.PROTOCOL}, the client speaks"
                f" {theirs}; run the same version of Holdfast on both sides"
            )
        )

    return handle


def _told(error: Exception) -> Answer:
    """An error, for the client to raise in its own place."""
    status = next((STATUSES[step] for step in type(error).__mro__ if step in STATUSES), 500)
    ours = (step.__name__ for step in type(error).__mro__ if step.__module__ == HoldfastError.__module__)
    name = next(ours, type(error).__name__ if status == 500 else ValueError.__name__)
    detail = str(error)
    if status == 500:
        logger.error("a call of a remote store failed", exc_info=error)
        detail = f"the store failed: {type(error).__name__}: {error}"
    document = {"type": f"urn:holdfast:problem:store:{name}", "title": "The store says no", "status": status}
    return Answer(status, _encode(document | {"detail": detail, "error": name}), CONTENT_TYPE, HEADERS)
