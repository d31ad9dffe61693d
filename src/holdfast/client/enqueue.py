"""Enqueue: from a call to a stored job, one or many, with the options of the call."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from operator import attrgetter
from typing import Any, Protocol, TypeVar, Unpack, cast

import msgspec

from ..codec import check_json
from ..core.errors import (
    ConfigError,
    HoldfastError,
    InvalidJob,
    JobExists,
    KeyConflict,
    OutcomeUnknown,
    PayloadTooLarge,
    QueueFull,
)
from ..core.follow_ups import made_from
from ..core.internal import TIMES, FollowUp, Internal, added, write
from ..core.job import LimitKey, NewJob
from ..core.operations import Inserted
from ..core.settings import Settings
from ..core.validation import checked_name
from ..observe import traces
from ..store.group_commit import PAGE, guard
from ..store.protocol import Batch, Binding, BlockingWrites
from ..tasks.handle import Handle
from ..tasks.limits import Limit
from ..tasks.options import JOB_OPTIONS, OPTION_OF, JobOptions, Options, name_of_codec
from ..tasks.registry import Registry
from ..tasks.task import BlockingTasks, Call, Task
from ..views import moment
from .handles import Handles
from .loop_calls import LoopEnded
from .many_calls import ManyCalls
from .runtime import Runtime, on_app_loop
from .session import Session
from .unique import REPLACED, insert_or_replace

R = TypeVar("R")
FOLLOW_UP = {OPTION_OF.get(name, name) for name in FollowUp.__struct_fields__} & {*JOB_OPTIONS} | {"limit"}
"""The options of a job that is stored when another one has ended: those that a `FollowUp` keeps."""
EnqueueHook = Callable[[NewJob, Callable[[NewJob], Awaitable[Inserted]]], Awaitable[Inserted]]


class OpenTransaction(Protocol):
    """The transaction that a framework has opened around a blocking caller."""

    @property
    def connection(self) -> Any:
        """As `connection=`; None if the transaction is of another database than the store."""
        ...

    def on_commit(self, store: Callable[[], object]) -> None:
        """Store a job after the commit."""
        ...


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
        self.only_on_loop = False
        """Whether blocking callers never insert on their own threads."""
        self.find_transaction: Callable[[], OpenTransaction | None] = _no_transaction
        """Finds the open transaction of a blocking caller, which its jobs become a part of."""

    @property
    def sync(self) -> BlockingTasks:
        return self.handles.sync

    async def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[Handle[Any]]:
        """Enqueue many calls, up to 1,000 jobs and 8 MB per write.

        A call is `app.call(task, …)` or a tuple `(task, …)`. Calls are taken from the
        iterable as they are written, at most 32 MB ahead.
        """
        many = await self.many_calls(calls)
        while jobs := many.next_page():
            await self.store_page(many, jobs)
        return many.handles(self.handles)

    async def many_calls(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> ManyCalls:
        """The calls of an `enqueue_many`, to be stored page by page. A hook is called around each insert."""
        settings, tasks = (await self._runtime.opened()).fresh_settings(), list[Task[..., Any]]()

        def jobs() -> Iterator[NewJob]:
            for given in calls:
                call = self._called(given)
                tasks.append(call.task)
                options = call.options
                if options.connection is not None:
                    raise InvalidJob(
                        f"task {call.task.name!r}: enqueue_many does not take connection=; enqueue the jobs one by one"
                        " in your transaction"
                    )
                if options.replace:
                    raise InvalidJob(
                        f"task {call.task.name!r}: enqueue_many does not take replace= or debounce=; enqueue the jobs"
                        " one by one"
                    )
                yield self.new_job(settings, call.task, options, call.args, call.kwargs)

        return ManyCalls(jobs(), tasks, len(calls) if isinstance(calls, Sized) else 0, 1 if self.hooks else PAGE)

    async def store_page(self, many: ManyCalls, jobs: Sequence[NewJob]) -> None:
        """Store one page of many calls."""
        try:
            many.answered(await self.insert_all(jobs))
        except Exception as error:  # noqa: BLE001  # a hook may raise anything; what was stored before it is stored
            many.failed(error)

    def _called(self, call: Any) -> Call[Any]:
        if isinstance(call, Call):
            return cast("Call[Any]", call)
        if isinstance(call, tuple) and call:
            fn, *args = cast("tuple[Any, ...]", call)
            return self._registry.call(fn, tuple(args), {})
        raise InvalidJob(
            f"enqueue_many: each call must be task.call(…), app.call(task, …) or a tuple (task, …), not {call!r:.100}"
        )

    async def enqueue_call(
        self, task: Task[..., R], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Handle[R]:
        """Store one call of a task as a job."""
        session = self._runtime.live_session()
        if session is None:
            if options.connection is not None:
                await self.check_bound(options.connection)
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
        codec = "json" if task.codec is None else name_of_codec(task.codec)
        payload = task.encode_open(args, kwargs) if holes else task.encode(args, kwargs)
        return self.make(settings, task.name, payload, codec, options)

    def make(self, settings: Settings, name: str, payload: bytes, codec: str, options: Options) -> NewJob:
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
        for option, at in (("expires", options.expires_at), ("deadline", options.deadline_at)):
            if at is not None and at <= self._runtime.clock.now():
                raise InvalidJob(
                    f"task {name!r}: {option}={moment(at)} is in the past, so the job was not stored; use a later time"
                )
        runtime = self._runtime
        id, key, attempts, unique = options.id, options.key, options.max_attempts, options.unique
        if unique is not None:
            key = key or f"{name}:{_fingerprint(name, payload, codec)}"
        job = NewJob(
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
            limit_key=self._limit_key(name, payload, codec, options),
            extra=_extra(options),
        )
        return self._with_follow_ups(settings, job, options)

    def _with_follow_ups(self, settings: Settings, job: NewJob, options: Options) -> NewJob:
        """The job, with the jobs that are stored when it has ended."""
        if options.on_success is None and options.on_dead is None:
            return job
        on_success = self._follow_up(settings, options.on_success, "on_success", job.id)
        on_dead = self._follow_up(settings, options.on_dead, "on_dead", job.id)
        return msgspec.structs.replace(job, extra=added(job.extra, Internal(on_success=on_success, on_dead=on_dead)))

    def _follow_up(self, settings: Settings, given: Any, option: str, id: str) -> FollowUp | None:
        if given is None:
            return None
        call = self._registry.call(given, (id,), {})
        task, options = call.task.stored_as("json"), call.options
        of_task = msgspec.structs.asdict(task.options)
        unfit = {OPTION_OF.get(name, name) for name in of_task if getattr(options, name) != of_task[name]} - FOLLOW_UP
        if unfit:
            raise InvalidJob(
                f"{option}= of job {id!r}: its options cannot have {', '.join(f'{name}=' for name in sorted(unfit))};"
                f" they can have {', '.join(f'{name}=' for name in sorted(FOLLOW_UP))}"
            )
        if task.codec is not None and name_of_codec(task.codec) != "json":
            raise InvalidJob(f"{option}= of job {id!r}: task {task.name!r} has its own codec; use a task with JSON")
        try:
            payload = task.encode(call.args, call.kwargs)
        except InvalidJob as error:
            raise InvalidJob(
                f"{option}= of job {id!r}: its task must take one argument, the id of that job: {error}"
            ) from None
        plain = msgspec.structs.replace(options, unique=None, window=0.0)
        return made_from(self.make(settings, task.name, payload, "json", plain))

    def _limit_key(self, name: str, payload: bytes, codec: str, options: Options) -> LimitKey | None:
        """The limit key of a job: from the limit of its call, else of its task, else of its queue, else None."""
        task = self._registry.tasks.get(name)
        task = None if task is None else task.stored_as(codec)
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
            unseen = not self._runtime.events.wanted("job_created")
            return [
                answer.id if unseen and answer.outcome == "created" else self._accepted(job, answer)
                for job, answer in zip(jobs, answers, strict=True)
            ]
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

    def insert_blocking(self, run: Callable[..., Any], job: NewJob, options: Options) -> str:
        """`insert` for a blocking caller: on its own thread if the store can, else on the app's loop, by `run`."""
        session = self._runtime.live_session()
        writes = None if session is None else session.blocking_writes
        if writes is None or options.replace or guard.get() is not None or self._needs_loop():
            return run(self.insert, job, options)
        if not traces.wanted():
            return _or_raise(self._insert_here(run, writes, job))
        with traces.enqueuing([job]) as (stamped,):
            id = self._insert_here(run, writes, stamped)
        return _or_raise(id)

    def _needs_loop(self) -> bool:
        """Whether code of the app that runs on its loop takes part in an insert."""
        handled = self._runtime.events.handled("job_created", "idempotent_submission")
        return handled or bool(self.hooks) or self.only_on_loop

    def _insert_here(self, run: Callable[..., Any], writes: BlockingWrites, job: NewJob) -> str | HoldfastError:
        unknown: OutcomeUnknown | None = None
        try:
            answers = writes.write_blocking(Batch([job]))
        except OutcomeUnknown as error:
            answers, unknown = None, error
        answer = run(self._insert_one, job, unknown) if answers is None else answers.inserts[0]
        return self._accepted(job, answer)

    async def _insert_one(self, job: NewJob, unknown: OutcomeUnknown | None = None) -> Inserted:
        return (await self._insert_jobs([job], unknown))[0]

    @on_app_loop
    async def _insert_or_replace(self, session: Session, max_delay: float | None, job: NewJob) -> Inserted:
        return await insert_or_replace(session, self._insert_one, job, max_delay)

    @on_app_loop
    async def _commit_jobs(
        self, session: Session, jobs: Sequence[NewJob], unknown: OutcomeUnknown | None
    ) -> Sequence[Inserted]:
        return await session.commit.insert(jobs, unknown)

    async def _insert_jobs(self, jobs: Sequence[NewJob], unknown: OutcomeUnknown | None = None) -> Sequence[Inserted]:
        """`unknown`: the error of an earlier attempt to store them, which may have succeeded."""
        try:
            try:
                return await self._commit_jobs(jobs, unknown)
            except LoopEnded as ended:  # jobs that were stored are recognised when they are sent again
                unknown = unknown or ended
                return await self._commit_jobs(jobs, unknown)
        except HoldfastError as error:
            first = unknown or error
            if not isinstance(first, OutcomeUnknown):
                raise
            again = all(job.nonce or (job.key is not None and job.unique in ("", "window")) for job in jobs)
            raise OutcomeUnknown(str(first), tuple(job.id for job in jobs), retry_safe=again) from error

    async def _hooked(self, job: NewJob, left: int, insert: Callable[[NewJob], Awaitable[Inserted]]) -> Inserted:
        if left == 0:
            return await insert(job)
        return await self.hooks[left - 1](job, lambda changed: self._hooked(changed, left - 1, insert))

    async def check_bound(self, connection: Any) -> None:
        """Before the app opens for the user's own transaction: check the store through the given connection."""
        if self._runtime.live_loop() is None:
            await self._binding().check_bound(connection)

    def _binding(self) -> Binding:
        store = self._runtime.store
        if not isinstance(store, Binding):
            raise ConfigError(
                f"the {store.name} store does not support connection=: only an app on the SQLite file or Postgres"
                " database of your transaction can store a job in it (sqlite:///…, postgresql://…). Use such an app,"
                " enqueue without connection= after your commit, or use holdfast.testing.on_memory in tests"
            )
        return store

    async def insert_bound(self, connection: Any, job: NewJob) -> str:
        """Store a job inside the user's own transaction, on the thread that owns the connection."""
        return _or_raise((await self.insert_all_bound(connection, [job]))[0])

    async def insert_all_bound(self, connection: Any, jobs: Sequence[NewJob]) -> list[str | HoldfastError]:
        """Store prepared jobs inside the user's own transaction: for each its id, or the error."""
        store = self._binding()

        async def insert(job: NewJob) -> Inserted:
            return (await store.insert_bound(connection, [job]))[0]

        with traces.enqueuing(jobs) as stamped:
            if self.hooks:
                answers = [await self._hooked(job, len(self.hooks), insert) for job in stamped]
            else:
                answers = await store.insert_bound(connection, stamped)
            return [self._accepted(job, answer) for job, answer in zip(stamped, answers, strict=True)]

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
        if chosen.connection is not None:
            await self.check_bound(chosen.connection)
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
                f"task {name!r:.150}: the payload given to submit must be bytes, not {type(payload).__name__}: encode"
                " it first"
            )
        data = bytes(payload)
        if json:
            check_json(data, f"task {name!r:.150}: the payload")
        return self.make(settings, checked_name(name, "task"), data, "json" if json else "bytes", options)


def _no_transaction() -> None:
    """Blocking callers have no open transaction, except those that name its connection."""


def _or_raise(id: str | HoldfastError) -> str:
    if isinstance(id, HoldfastError):
        raise id
    return id


_times = attrgetter(*TIMES)
_NO_TIMES = (None,) * len(TIMES)


def _extra(options: Options) -> bytes | None:
    times = _times(options)
    return None if times == _NO_TIMES else write(Internal(**dict(zip(TIMES, times, strict=True))))


def _fingerprint(name: str, payload: bytes = b"", codec: str = "") -> str:
    if codec == "json":  # the order of keys does not matter
        payload = msgspec.json.encode(msgspec.json.decode(payload), order="sorted")
    return hashlib.blake2b(name.encode() + b"\0" + payload, digest_size=16).hexdigest()
