"""The store protocol over HTTP, for store URLs `http://…`: one path per method, on the app's store.

Only Holdfast's client uses these routes; they change with the protocol number and are not part of the API.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.clock import fresh_secret
from ..core.errors import ConfigError, HoldfastError, InvalidJob, OutcomeUnknown, StoreUnavailable
from ..core.job import UNDECODABLE
from ..core.operations import CallsCursor, WaitingCall, WaitingCalls
from ..declarations import WORKER_WRITES
from ..observe.actors import acting
from ..store import rpc
from ..store.protocol import Answers, Batch, Finding, Versioned, holder_in
from ..store.worker_writes import Declarations, RecordWrite, WorkerWrites
from ..version import __version__
from . import limits, notifications, tokens
from .call import Answer, Call, ClientGone, Stream
from .endpoint import Endpoint
from .idempotency_cache import IdempotencyCache
from .job_policy import JobPolicy
from .notifications import MAX_STREAMS, Notifications
from .operator_writes import OperatorWrites
from .problems import CONTENT_TYPE
from .rpc_validation import ADVICE, CHECKS, check_batch, check_kinds, check_record
from .senders import Senders

if TYPE_CHECKING:
    from ..parts import Parts

logger = logging.getLogger("holdfast.http")
ROLE, OPERATE, READ = "work", "operate", "read"
NO_ANSWER = "this server has no stored answer of the call, which may have run: check the store before you repeat it"
MAX_RPC_BODY = 64 * limits.MIB
"""Maximum bytes of a batch; a client splits a larger one."""
ROLES = {rpc.WAITING_CALLS.name: READ}
"""The calls that need another role than `ROLE`."""
HEADERS = {rpc.PROTOCOL_HEADER.lower(): str(rpc.PROTOCOL)}
STATUSES: dict[type[Exception], int] = {
    StoreUnavailable: 503,
    OutcomeUnknown: 504,
    ConfigError: 400,
    InvalidJob: 422,
    ValueError: 422,
    OverflowError: 422,
}
"""The HTTP status of each exception of a store; the nearest base class applies, others are 500."""
_encode = msgspec.json.Encoder().encode

Handler = Callable[[Call], Awaitable[Answer | Stream]]


class StoreRpc:
    """The routes to one app's store. The server authenticates requests and requires the role `work`, for
    `waiting_calls` the role `read`.

    1. A batch goes through the app's group commit, so several clients share commits.
    2. A request that must not be executed twice has an id, and its answer is cached (`idempotency_cache.py`).
    3. Writes of workers need the role `work`; changing other jobs, pauses and settings need `operate` too. `declared`
       by the services: which records and changes are those of workers, and further checks of them.
    4. `checks`: arguments are validated by the same rules as in an app (`rpc_validation.py`).
    5. `sweeps`: this server, not its clients, handles expired leases and retention (`sweeper.py`).
    6. A write that needs `operate` is in the audit log (`operator_writes.py`).
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
        self._senders = Senders(parts.runtime.clock)
        self._operators = OperatorWrites(parts.runtime)
        self._sweeps = sweeps
        self._policy = policy
        self._declared = Declarations(declared)
        self._checks = checks
        self._cache = IdempotencyCache(parts.runtime.clock)
        self._notifications = Notifications(lambda topic: self._parts.session.store.listen([topic]))

    def endpoints(self) -> list[Endpoint]:
        handlers: dict[str, Handler] = {method.name: self._plain(method) for method in rpc.PLAIN}
        handlers[rpc.HELLO.name] = self._hello
        handlers[rpc.WRITE.name] = self._method(rpc.WRITE, self._write, self._worker_sends)
        handlers[rpc.RECORDS.name] = self._method(rpc.RECORDS, self._records, self._worker_reads)
        handlers[rpc.PUT_RECORD.name] = self._method(rpc.PUT_RECORD, self._put_record, self._worker_puts)
        handlers[rpc.WARNINGS.name] = self._method(rpc.WARNINGS, self._warnings)
        handlers[rpc.WAITING_CALLS.name] = self._calls_by_role()
        handlers[rpc.RECALL] = self._recalled
        handlers[rpc.LISTEN] = self._listen
        handlers[rpc.TOPICS.name] = self._method(rpc.TOPICS, self._change_topics)
        return [
            Endpoint("POST", f"{rpc.PATH}/{name}", ROLES.get(name, ROLE), _versioned(handler), {200: Any})
            for name, handler in handlers.items()
        ]

    # -- calls

    def _plain(self, method: rpc.Method[Any]) -> Handler:
        check = CHECKS.get(method.name) if self._checks else None

        async def make(*arguments: Any) -> Any:
            if check is not None:
                check(*arguments)
            if method is rpc.HEARTBEAT:
                self._senders.heard(*arguments)
            return await getattr(self._parts.session.store, method.name)(*arguments)

        return self._method(method, make)

    def _method(
        self,
        method: rpc.Method[Any],
        make: Callable[..., Awaitable[Any]],
        permits: Callable[..., Awaitable[bool]] | None = None,
    ) -> Handler:
        """`permits`: whether the role `work` is enough for a call with these arguments; else `operate` is needed."""
        decode = msgspec.json.Decoder(method.arguments).decode

        async def handle(call: Call) -> Answer:
            body = await call.body(MAX_RPC_BODY)
            if body.count(b",") > limits.VALUES:
                return _error(
                    InvalidJob(
                        f"the arguments of the store call {method.name} have more than {limits.VALUES} values; nothing"
                        " was done: send less at once"
                    )
                )
            try:
                arguments = decode(body)
            except UNDECODABLE as error:
                text = f"the arguments of the store call {method.name} cannot be decoded: {error}; {ADVICE}"
                return _error(InvalidJob(text))
            with acting(call.actor):
                return await answer(call, arguments)

        async def answer(call: Call, arguments: tuple[Any, ...]) -> Answer:
            if permits is not None and OPERATE not in call.roles and (no := await self._refusal(permits, arguments)):
                return no
            if method.kind != "once":
                return await self._made(method.name, make, arguments)
            request = call.header(rpc.REQUEST_HEADER.lower().encode())
            if request is None:
                return _error(InvalidJob(f"store call {method.name} needs the header {rpc.REQUEST_HEADER}; {ADVICE}"))
            return await self._cache.once(request.decode("latin-1"), lambda: self._made(method.name, make, arguments))

        return handle

    async def _refusal(self, permits: Callable[..., Awaitable[bool]], arguments: tuple[Any, ...]) -> Answer | None:
        """The error answer if a call needs the role `operate`; None if `work` is enough."""
        try:
            await self._parts.runtime.open()
            if await permits(*arguments):
                return None
        except HoldfastError as error:
            return _error(error)
        return _error(
            ConfigError(f"this operation needs a token with the roles {OPERATE!r} and {ROLE!r}; use another token")
        )

    async def _made(self, name: str, make: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...] = ()) -> Answer:
        """The answer of a call of the method with this name, or the error that it raised."""
        try:
            await self._parts.runtime.open()
            return Answer(200, _encode(await make(*arguments)), headers=HEADERS)
        except Exception as error:  # noqa: BLE001  # the client raises it again
            return _error(error, name)

    async def _write(self, batch: Batch) -> Answers:
        if self._checks:
            check_batch(batch, self._parts.session.settings.max_payload)
            await self._declared.check_inserts(self._parts.session.store, self._parts.session.entropy, batch.inserts)
        write = partial(self._parts.session.commit.write, batch)
        if not batch.changes or self._declared.worker_changes(batch.changes):
            return await write()
        return await self._operators.change(batch.changes, write)

    async def _warnings(self) -> Sequence[Finding]:
        return await self._parts.session.health.warnings()

    async def _waiting_calls(self, queue: str | None, cursor: CallsCursor | None) -> WaitingCalls:
        from ..worker.waiting_calls import waiting_calls  # late: only deploy checks need it

        return await waiting_calls(self._parts.session.store, queue, cursor)

    async def _readable_calls(self, queue: str | None, cursor: CallsCursor | None) -> WaitingCalls:
        page = await self._waiting_calls(queue, cursor)
        return msgspec.structs.replace(page, calls=[_without_pickle(call) for call in page.calls])

    def _calls_by_role(self) -> Handler:
        """Pickled calls are only for workers, as in all other answers."""
        whole = self._method(rpc.WAITING_CALLS, self._waiting_calls)
        readable = self._method(rpc.WAITING_CALLS, self._readable_calls)

        async def handle(call: Call) -> Answer | Stream:
            return await (whole if ROLE in call.roles else readable)(call)

        return handle

    async def _records(self, kinds: Sequence[str]) -> dict[str, dict[str, Versioned]]:
        if self._checks:
            check_kinds(kinds)
        for kind in kinds:
            await self._declared.of(kind).before_read(self._parts.session.store)
        return await self._parts.session.store.records(kinds)

    async def _put_record(self, kind: str, name: str, value: bytes | None, expect: int | None) -> bool:
        if self._checks:
            check_record(kind, name, value, expect, self._parts.session.settings.max_payload)
        declared, store = self._declared.of(kind), self._parts.session.store
        record = self._operators.stamped(declared, RecordWrite(kind, name, value, expect))
        for job in await declared.check(store, record):
            self._policy.check_job(job)
        write = partial(self._parts.records.put, kind, name, record.value, expect)  # applies new settings at once
        if declared.audits or await declared.worker(store, record):
            written = await write()
        else:
            written = await self._operators.put(record, write)
        if written:
            self._operators.follow(declared, record)
        if declared.notifies_end and written and value is not None:
            self._parts.session.commit.notify_end(name)
        return written

    async def _worker_sends(self, batch: Batch) -> bool:
        return self._declared.worker_changes(batch.changes)

    async def _worker_reads(self, kinds: Sequence[str]) -> bool:
        return all(self._declared.of(kind).worker_reads for kind in kinds)

    async def _worker_puts(self, kind: str, name: str, value: bytes | None, expect: int | None) -> bool:
        declared = self._declared.of(kind)
        if declared.for_holder and not self._senders.allows(holder_in(name)):
            return False
        return await declared.worker(self._parts.session.store, RecordWrite(kind, name, value, expect))

    async def _hello(self, call: Call) -> Answer:
        async def make() -> rpc.Hello:
            store = self._parts.session.store
            features = {name for name in store.features if not name.startswith("transactional")}
            if self._sweeps:
                features.add("sweeps")
            return rpc.Hello(__version__, store.name, tuple(sorted(features)), tuple(sorted(call.roles)))

        return await self._made("hello", make)

    async def _recalled(self, call: Call) -> Answer:
        request = call.header(rpc.REQUEST_HEADER.lower().encode()) or b""
        answer = await self._cache.again(request.decode("latin-1"))
        return answer or _error(OutcomeUnknown(NO_ANSWER))

    # -- notifications

    async def _listen(self, call: Call) -> Answer | Stream:
        body = await call.body(MAX_RPC_BODY)
        try:
            (topics,) = msgspec.json.decode(body, type=tuple[list[str]])
            await self._parts.runtime.open()
        except UNDECODABLE as error:
            return _error(InvalidJob(f"the list of topics cannot be decoded: {error}"))
        except HoldfastError as error:
            return _error(error)
        if len(self._notifications) >= MAX_STREAMS:  # no await before the stream is counted
            text = (
                f"the server already has its maximum of {MAX_STREAMS} notification streams; this client polls instead"
            )
            return _error(StoreUnavailable(text))
        stream = self._notifications.open(fresh_secret(), topics)
        lines, ended = self._lines(call, stream), lambda: self._notifications.close(stream)
        return Stream(lines, b"application/x-ndjson", ended, HEADERS)

    async def _lines(self, call: Call, stream: notifications.Stream) -> AsyncGenerator[bytes]:
        """The stream's name, then notified topics, until the client disconnects, its token ends or the server stops."""
        yield _encode(stream.name) + b"\n"
        with suppress(ClientGone):
            while (news := await call.while_wanted(stream.news())) is not None and await call.still_may(ROLE):
                yield news

    async def _change_topics(self, change: rpc.Topics) -> None:
        if not self._notifications.change(change.stream, change.add, change.remove):
            raise StoreUnavailable("this notification stream does not exist on this server; open a new one")


def _without_pickle(call: WaitingCall) -> WaitingCall:
    return msgspec.structs.replace(call, payload=b"", withheld=True) if call.codec == "cloudpickle" else call


def _versioned(handler: Handler) -> Handler:
    async def handle(call: Call) -> Answer | Stream:
        """One call of the store protocol, for Holdfast's client."""
        version = call.header(rpc.PROTOCOL_HEADER.lower().encode())
        if version == str(rpc.PROTOCOL).encode():
            return await handler(call)
        theirs = "none" if version is None else version.decode("latin-1")[:20]
        return _error(
            ConfigError(
                f"this server is Holdfast {__version__} and uses store protocol {rpc.PROTOCOL}, the client uses"
                f" protocol {theirs}; run the same version of Holdfast on both sides"
            )
        )

    return handle


def _error(error: Exception, method: str = "?") -> Answer:
    """An error as an answer, which the client raises again."""
    status = next((STATUSES[step] for step in type(error).__mro__ if step in STATUSES), 500)
    ours = (step.__name__ for step in type(error).__mro__ if step.__module__ == HoldfastError.__module__)
    name = next(ours, type(error).__name__ if status == 500 else ValueError.__name__)
    detail = str(error)
    if status == 500:
        logger.error("the store call %s of a remote client failed with an unexpected error", method, exc_info=error)
        detail = f"the store failed, so the call may have written: {type(error).__name__}: {error}"
    document = {"type": f"urn:holdfast:problem:store:{name}", "title": "The store call failed", "status": status}
    return Answer(status, _encode(document | {"detail": detail, "error": name}), CONTENT_TYPE, HEADERS)
