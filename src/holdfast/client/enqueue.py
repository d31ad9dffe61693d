"""Enqueue: from a call to a stored job, one or many, with the options of the call."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, cast

import msgspec

from ..codec import check_json
from ..core.errors import (
    ConfigError,
    HoldfastError,
    InvalidJob,
    JobExists,
    KeyConflict,
    OutcomeUnknown,
    PartialEnqueue,
    PayloadTooLarge,
    QueueFull,
)
from ..core.internal import Internal, write
from ..core.job import LimitKey, NewJob
from ..core.operations import Inserted
from ..core.settings import Settings
from ..core.validation import checked_name
from ..observe import traces
from ..store.group_commit import PAGE
from ..store.protocol import Binding
from ..tasks.handle import Handle
from ..tasks.limits import Limit
from ..tasks.options import JobOptions, Options
from ..tasks.registry import Registry
from ..tasks.task import BlockingTasks, Call, Task
from ..views import moment
from .handles import Handles
from .loop_calls import LoopEnded
from .runtime import Runtime, on_app_loop
from .session import Session
from .unique import REPLACED, insert_or_replace

R = TypeVar("R")
EnqueueHook = Callable[[NewJob, Callable[[NewJob], Awaitable[Inserted]]], Awaitable[Inserted]]


class Enqueue:
    """Stores jobs, one or many. Calls are encoded, and hooks run, on the caller's thread and loop."""

    def __init__(
        self, runtime: Runtime, registry: Registry, handles: Handles, queue_limits: Mapping[str, Limit]
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self.handles = handles
        self._queue_limits = queue_limits
        self.known_store_id = runtime.known_store_id
        self.hooks: list[EnqueueHook] = []
        """Called around every insert; the last one is the outermost."""

    @property
    def sync(self) -> BlockingTasks:
        return self.handles.sync

    async def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[Handle[Any]]:
        """Enqueue many calls, one round trip per thousand. A call is `app.call(task, …)` or a tuple `(task, …)`."""
        settings = (await self._runtime.opened()).fresh_settings()
        made = [self._called(call) for call in calls]
        jobs = [self.new_job(settings, call.task, call.options, call.args, call.kwargs) for call in made]
        if any(call.options.connection is not None for call in made):
            raise InvalidJob("enqueue_many does not take connection=; enqueue the jobs one by one in your transaction")
        if any(call.options.replace for call in made):
            raise InvalidJob("enqueue_many does not take replace= or debounce=; enqueue the jobs one by one")
        ids: list[str | Exception] = []
        step = 1 if self.hooks else PAGE
        for start in range(0, len(jobs), step):
            part = jobs[start : start + step]
            try:
                ids += await self.insert_all(part)
            except Exception as error:  # noqa: BLE001  # a hook may raise anything; what was stored before it is stored
                ids += [error] * (len(jobs) - start)
                break
        refused = [id for id in ids if isinstance(id, Exception)]
        if len(refused) == len(ids) and refused:
            raise refused[0]
        handles = [
            None if isinstance(id, Exception) else self.handles.handle(id, call.task.decode_result)
            for id, call in zip(ids, made, strict=True)
        ]
        if refused:
            raise PartialEnqueue(handles, refused[0]) from refused[0]
        return cast("list[Handle[Any]]", handles)

    def _called(self, call: Any) -> Call[Any]:
        if isinstance(call, Call):
            return cast("Call[Any]", call)
        if isinstance(call, tuple) and call:
            fn, *args = cast("tuple[Any, ...]", call)
            return self._registry.call(fn, tuple(args), {})
        raise InvalidJob(f"a call must be app.call(task, …) or a tuple (task, …), not {call!r:.100}")

    async def enqueue_call(
        self, task: Task[..., R], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Handle[R]:
        """Store one call of a task as a job."""
        session = self._runtime.live_session()
        if session is None:
            self.check_bound(options.connection)
            session = await self._runtime.opened()
        job = self.new_job(session.fresh_settings(), task, options, args, kwargs)
        if options.connection is not None:
            return self.handles.handle(await self.insert_bound(options.connection, job), task.decode_result)
        return self.handles.handle(await self.insert(job, options), task.decode_result)

    def new_job(
        self,
        settings: Settings,
        task: Task[..., Any],
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        holes: bool = False,
    ) -> NewJob:
        """The checked job of a call; nothing is stored yet. `holes`: it takes results of other jobs."""
        codec = "json" if task.codec is None else getattr(task.codec, "name", "custom")
        payload = task.encode_open(args, kwargs) if holes else task.encode(args, kwargs)
        return self._make(settings, task.name, payload, codec, options)

    def _make(self, settings: Settings, name: str, payload: bytes, codec: str, options: Options) -> NewJob:
        if len(payload) > settings.max_payload:
            raise PayloadTooLarge(
                f"task {name!r}: a payload of {len(payload)} bytes is over max_payload ({settings.max_payload}); "
                "store the data elsewhere and pass its address"
            )
        if options.meta and (size := len(msgspec.json.encode(options.meta))) > settings.max_payload:
            raise PayloadTooLarge(
                f"task {name!r}: meta of {size} bytes is over max_payload ({settings.max_payload}); "
                "store the data elsewhere and pass its address"
            )
        if options.window > settings.key_retention:
            raise InvalidJob(
                f"task {name!r}: unique={options.window:g} s is longer than the setting key_retention"
                f" ({settings.key_retention:g} s); use a shorter time, or raise key_retention"
            )
        if options.expires_at is not None and options.expires_at <= self._runtime.clock.now():
            raise InvalidJob(f"task {name!r}: expires={moment(options.expires_at)} is in the past; nothing was stored")
        runtime = self._runtime
        id, key, attempts, unique = options.id, options.key, options.max_attempts, options.unique
        if unique is not None:
            key = key or f"{name}:{_fingerprint(name, payload, codec)}"
        return NewJob(
            runtime.entropy.uuid7(runtime.clock.now()) if id is None else id,
            name,
            options.queue or "default",
            payload,
            codec,
            options.priority or 0,
            options.delay,
            options.run_at,
            settings.max_attempts if attempts is None else attempts,
            options.timeout,
            key,
            "" if key is None else _fingerprint(name, payload, codec) if unique is None else _fingerprint(name),
            0 if id is None else runtime.entropy.token(),
            settings.max_depth,
            options.tags,
            dict(options.meta) if options.meta else {},
            options.retry,
            unique or "",
            options.window,
            limit_key=self._limit_key(name, payload, options),
            extra=_extra(options),
        )

    def _limit_key(self, name: str, payload: bytes, options: Options) -> LimitKey | None:
        """The limit key of a job: from the limit of its call, else of its task, else of its queue, else None."""
        task = self._registry.tasks.get(name)
        limit = options.limit or (None if task is None else task.options.limit)
        if limit is not None:
            return limit.limit_key(name, task, payload)
        if not self._queue_limits:
            return None
        queue = options.queue or "default"
        limit = self._queue_limits.get(queue)
        return None if limit is None else limit.limit_key_in_queue(queue, name, task, payload)

    async def insert(self, job: NewJob, options: Options) -> str:
        """Store one job, made with these options, or replace the job with the same key; returns the id."""
        insert = partial(self._insert_or_replace, options.debounce_max) if options.replace else None
        return _or_raise((await self.insert_all([job], insert))[0])

    async def insert_all(
        self, jobs: Sequence[NewJob], insert: Callable[[NewJob], Awaitable[Inserted]] | None = None
    ) -> list[str | HoldfastError]:
        """Store prepared jobs: for each the id of the job that has its key or id, or the error.

        `insert`: replaces the plain insert of each job.
        """
        if not traces.wanted():
            return await self._insert_traced(jobs, insert)
        with traces.enqueuing(jobs) as stamped:
            return await self._insert_traced(stamped, insert)

    async def _insert_traced(
        self, jobs: Sequence[NewJob], insert: Callable[[NewJob], Awaitable[Inserted]] | None
    ) -> list[str | HoldfastError]:
        if not self.hooks and insert is None:
            answers = await self._insert_jobs(jobs)
            return [self._accepted(job, answer) for job, answer in zip(jobs, answers, strict=True)]
        ids: list[str | HoldfastError] = []
        for job in jobs:
            try:
                answer = await self._hooked(job, len(self.hooks), insert or self._insert_one)
            except HoldfastError as error:
                if not ids:
                    raise
                return ids + [error] * (len(jobs) - len(ids))  # jobs stored before the error stay stored
            ids.append(self._accepted(job, answer))
        return ids

    async def _insert_one(self, job: NewJob) -> Inserted:
        return (await self._insert_jobs([job]))[0]

    @on_app_loop
    async def _insert_or_replace(self, session: Session, max_delay: float | None, job: NewJob) -> Inserted:
        return await insert_or_replace(session, self._insert_one, job, max_delay)

    @on_app_loop
    async def _commit_jobs(self, session: Session, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return await session.commit.insert(jobs)

    async def _insert_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        try:
            try:
                return await self._commit_jobs(jobs)
            except LoopEnded:  # jobs that were stored are recognised when they are sent again
                return await self._commit_jobs(jobs)
        except OutcomeUnknown as error:
            again = all(job.nonce or (job.key is not None and job.unique in ("", "window")) for job in jobs)
            raise OutcomeUnknown(str(error), tuple(job.id for job in jobs), retry_safe=again) from error

    async def _hooked(self, job: NewJob, left: int, insert: Callable[[NewJob], Awaitable[Inserted]]) -> Inserted:
        if left == 0:
            return await insert(job)
        return await self.hooks[left - 1](job, lambda changed: self._hooked(changed, left - 1, insert))

    def check_bound(self, connection: Any) -> None:
        """Before the app opens for the user's own transaction: check the store through the given connection."""
        if connection is not None and self._runtime.live_loop() is None:
            self._binding().check_bound(connection)

    def _binding(self) -> Binding:
        store = self._runtime.store
        if not isinstance(store, Binding):
            raise ConfigError(
                f"the {store.name} store does not support connection=: only SQLite and Postgres can store a job in your"
                " own transaction; enqueue without it after your commit"
            )
        return store

    async def insert_bound(self, connection: Any, job: NewJob) -> str:
        """Store a job inside the user's own transaction, on the thread that owns the connection."""
        store = self._binding()

        async def insert(job: NewJob) -> Inserted:
            return (await store.insert_bound(connection, [job]))[0]

        with traces.enqueuing([job]) as (stamped,):
            return _or_raise(self._accepted(stamped, await self._hooked(stamped, len(self.hooks), insert)))

    def _accepted(self, job: NewJob, answer: Inserted) -> str | HoldfastError:
        """The id of the job that the call got, or the error."""
        outcome = answer.outcome
        if outcome == "created":
            self._runtime.events.created(job)
            return answer.id
        if outcome == "existing":
            self._runtime.events.idempotent(job, answer.id)
            return answer.id
        if outcome == REPLACED:
            self._runtime.events.replaced(job, answer.id)
            return answer.id
        if outcome == "conflict":
            return KeyConflict(job.key or "", answer.id)
        return JobExists(job.id) if outcome == "exists" else QueueFull(job.queue, job.max_depth or 0)

    async def submit(
        self, name: str, payload: bytes, /, *, json: bool = False, **options: Unpack[JobOptions]
    ) -> Handle[Any]:
        """Store a job with a payload of raw bytes (with `json`: JSON text), and the options of `using`."""
        return await self.submit_with(name, payload, Options().changed(options), json=json)

    async def submit_with(self, name: str, payload: bytes, chosen: Options, *, json: bool) -> Handle[Any]:
        self.check_bound(chosen.connection)
        job = self.submission((await self._runtime.opened()).fresh_settings(), name, payload, chosen, json=json)
        if chosen.connection is not None:
            return self.handles.handle(await self.insert_bound(chosen.connection, job))
        return self.handles.handle(await self.insert(job, chosen))

    def submission(
        self, settings: Settings, name: str, payload: bytes, options: Options, *, json: bool = False
    ) -> NewJob:
        """The checked job of a payload; nothing is stored yet."""
        if not isinstance(payload, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(
                f"the payload given to submit must be bytes, not {type(payload).__name__}: encode it first"
            )
        data = bytes(payload)
        if json:
            check_json(data)
        return self._make(settings, checked_name(name, "task"), data, "json" if json else "bytes", options)


def _or_raise(id: str | HoldfastError) -> str:
    if isinstance(id, HoldfastError):
        raise id
    return id


def _extra(options: Options) -> bytes | None:
    if options.expires_in is None and options.expires_at is None:
        return None
    return write(Internal(expires_at=options.expires_at, expires_in=options.expires_in))


def _fingerprint(name: str, payload: bytes = b"", codec: str = "") -> str:
    if codec == "json":  # the order of keys does not matter
        payload = msgspec.json.encode(msgspec.json.decode(payload), order="sorted")
    return hashlib.blake2b(name.encode() + b"\0" + payload, digest_size=16).hexdigest()
