"""The app: tasks by name, and everything one can ask of a queue. Command line, HTTP and dashboard go through it.

An app lives on one event loop, which is the first that uses it (or a thread of its own, for `app.sync`).
Calls from other loops and threads are carried there, so that all callers of a process share commits.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from . import lifecycle
from .checks import (
    PAGE_LIMIT,
    checked_cursor,
    checked_filter,
    checked_lease,
    checked_limit,
    checked_meta,
    checked_name,
    checked_names,
    checked_seconds,
    error_text,
)
from .claim import Claim, claim_by_hand
from .clock import Clock, Entropy, SystemClock, fresh_entropy
from .codec import Signed, check_json
from .config import Config
from .context import Context
from .errors import (
    ConfigError,
    HoldfastError,
    InvalidJob,
    JobExists,
    KeyConflict,
    LeaseLost,
    OutcomeUnknown,
    PartlyEnqueued,
    PayloadTooLarge,
    QueueFull,
    WrongState,
)
from .handle import Handle
from .job import Beat, Change, Holder, Inserted, NewJob, Note, Printed, QueueStats, Record, Settlement, State, Where
from .observe.events import Events
from .registry import Registry
from .retry import Backoff, RetryRule
from .session import Session
from .settings import Settings, combine, from_environment
from .store.open import open_store
from .store.protocol import Binding, Store, Versioned
from .sync import SyncApp
from .task import Call, Codec, Options, Task, Using
from .view import Job, WorkerSeen, job_seen, states_named, worker_seen

if TYPE_CHECKING:
    from .explain import Explanation

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Holdfast")
OUTPUT_PAGE = 1 << 20
BULK = 1000

EnqueueHook = Callable[[NewJob, Callable[[NewJob], Awaitable[Inserted]]], Awaitable[Inserted]]
RunHook = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
ErrorHook = Callable[[BaseException, Job], object]

_apps: weakref.WeakSet[Holdfast] = weakref.WeakSet()


class Given(TypedDict, total=False):
    """The settings that an app takes as keyword arguments."""

    lease: float
    poll: float
    grace: float
    concurrency: int
    max_attempts: int
    retry_base: float
    retry_factor: float
    retry_jitter: float
    retry_cap: float
    max_silent_deaths: int
    max_payload: int | str
    max_output: int | str
    max_depth: int | None
    retention: float | str | timedelta
    key_retention: float | str | timedelta
    default_result_timeout: float | None
    unknown_tasks: str
    cloudpickle: bool
    secret: str


class Page(msgspec.Struct, frozen=True):
    """Some jobs, newest first; `cursor` fetches the next page, None where this was the last."""

    jobs: list[Job]
    cursor: str | None


class Stats(msgspec.Struct, frozen=True):
    """A store in numbers."""

    queues: list[QueueStats]
    workers: int

    @property
    def counts(self) -> dict[str, int]:
        """Jobs by state, over all queues, zeros included."""
        totals = {state.value: 0 for state in State}
        for queue in self.queues:
            for state, count in queue.counts.items():
                totals[state] += count
        return totals


def carried(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Makes a method open the app at its first use, and run on the app's own loop wherever it is called."""

    @functools.wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        session = self._session  # pyright: ignore[reportPrivateUsage]  # this wraps methods of the class itself
        if session is not None and session.loop is asyncio.get_running_loop():
            return await method(self, *args, **kwargs)
        home = await self._home()  # pyright: ignore[reportPrivateUsage]
        if home is asyncio.get_running_loop():
            return await method(self, *args, **kwargs)
        return await carry(method(self, *args, **kwargs), home)

    return call


async def carry(coroutine: Coroutine[Any, Any, R], home: asyncio.AbstractEventLoop) -> R:
    """Run a coroutine on another thread's loop. That loop may end before it answers: then nobody waits for ever."""
    there = asyncio.run_coroutine_threadsafe(coroutine, home)
    here = asyncio.wrap_future(there)
    try:
        while not here.done() and (home.is_running() or there.done()):
            await asyncio.wait([here], timeout=1.0)
    except asyncio.CancelledError:
        here.cancel()
        raise
    if here.done() and not here.cancelled():
        return here.result()
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
    raise HoldfastError("the event loop that the app lived on has ended; whether the call was made is not known")


class Holdfast:
    """A job queue on a store, named by a URL (else HOLDFAST_URL, else sqlite:///holdfast.db) or given as an object.

    `imports` names the modules whose functions may be run by name (`module:qualname`), beside the registered tasks.
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        imports: Sequence[str] = (),
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[Given],
    ) -> None:
        self.clock = clock or SystemClock()
        self.entropy = entropy or fresh_entropy()
        self.events = Events()
        self._seeded = entropy is not None
        self._given: dict[str, Any] = dict(settings)
        if isinstance(store, str):
            self._given["url"] = store
        self._object = None if store is None or isinstance(store, str) else store
        if self._object is not None and not hasattr(self._object, "write"):
            raise ConfigError(f"an app is made on a URL or a store, not on {store!r:.100}")
        start = combine(self._given, from_environment(os.environ), {})
        self.url = start.url if self._object is None else f"{self._object.name}://"
        if start.cloudpickle and not start.secret:
            raise ConfigError("the cloudpickle codec signs what it stores: set secret= or HOLDFAST_SECRET")
        # What a name from the store may be resolved in: the module that makes the app, and those it names.
        own = inspect.currentframe()
        maker = "" if own is None or own.f_back is None else own.f_back.f_globals.get("__name__", "")
        signed = Signed(start.secret) if start.cloudpickle and start.secret else None
        self.registry = Registry(self, {maker, *imports}, signed)
        self.around_enqueue: list[EnqueueHook] = []
        self.around_run: list[RunHook] = []
        self.on_error: list[ErrorHook] = []
        self.before_close: set[Callable[[], Awaitable[object]]] = set()
        """What must end before the app can: the workers that run on it."""
        self._session: Session | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._choosing = threading.Lock()
        self._store = open_store(self.url, self.clock) if self._object is None else self._object
        self.sync = SyncApp(self)
        _apps.add(self)
        self.registry.add(_noop, "noop", Options(), built_in=True)

    # -- opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @carried
    async def open(self) -> None:
        """Connect now rather than at the first use."""

    async def close(self) -> None:
        """Write what was handed in, then disconnect. The app may be used again: it opens anew."""
        session = self._session
        if session is None:
            return
        if session.loop is asyncio.get_running_loop():
            for end in list(self.before_close):
                await end()
            if self._session is session:
                self._session = None
                # Whoever uses the app meanwhile waits until the store is closed, and opens it anew.
                self._closing = session.loop.create_task(session.close())
            if self._closing is not None:
                await asyncio.shield(self._closing)
        elif session.loop.is_running():
            await carry(self.close(), session.loop)
        else:
            self._abandon(session)

    def _abandon(self, session: Session) -> None:
        """Its loop ended without closing the app: nothing can be awaited there any more."""
        session.store.abandon()
        self.before_close.clear()
        self._session = None

    async def _home(self) -> asyncio.AbstractEventLoop:
        """The app's loop: this one, from now on, where it has none that lives."""
        loop = asyncio.get_running_loop()
        with self._choosing:
            session, opening = self._session, self._opening
            if session is not None:
                if session.loop.is_running():
                    return session.loop
                self._abandon(session)
            if opening is None or opening.done() or not opening.get_loop().is_running():
                opening = self._opening = loop.create_task(self._open())
        home = opening.get_loop()
        if home is loop:
            await asyncio.shield(opening)
            return loop
        await carry(self._home(), home)  # another thread was first
        return home

    async def _open(self) -> None:
        closing = self._closing
        if closing is not None and not closing.done() and closing.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([closing])
        self._closing = None
        session = Session(self._store, self._given, self.clock, self.entropy)
        try:
            await session.open()
        except BaseException:
            self._store.abandon()  # half open, it would stay bound to a loop that may end
            raise
        self._session = session

    def live_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that the app lives on, if it runs."""
        session = self._session
        return session.loop if session is not None and session.loop.is_running() else None

    @property
    def store(self) -> Store:
        """The store itself, open or not."""
        return self._store

    @property
    def session(self) -> Session:
        """The open session, for workers on the app's own loop."""
        if self._session is None:
            raise ConfigError("the app is not open")
        return self._session

    def after_fork(self) -> None:
        """In a forked child: nothing of the parent's connections may be used or closed here."""
        if self._session is not None:
            self._session.store.abandon()
        self._session = self._opening = self._closing = None
        self.before_close.clear()
        self._choosing = threading.Lock()
        if not self._seeded:
            self.entropy = fresh_entropy()
        self.sync.after_fork()

    # -- tasks

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        fn: Callable[..., Any],
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        retry: RetryRule | None = None,
        timeout: float | timedelta | None = None,
        run_in: str | None = None,
        payload: bool = False,
        codec: Codec | None = None,
        tags: Sequence[str] | None = None,
        retention: float | timedelta | str | None = None,
        memory: int | str | None = None,
    ) -> Task[..., Any]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        retry: RetryRule | None = None,
        timeout: float | timedelta | None = None,
        run_in: str | None = None,
        payload: bool = False,
        codec: Codec | None = None,
        tags: Sequence[str] | None = None,
        retention: float | timedelta | str | None = None,
        memory: int | str | None = None,
    ) -> TaskMaker: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register a function as a task, plainly or with options of its own.

        `run_in`: "loop" for async functions, "thread" for plain ones; "process" (a pool) or "isolated" (a fresh process
        per job, killable) for either, with a limit of `memory` where given, such as "2GB". `retry`: a Backoff, or a
        function of (exception, attempt) that answers seconds to wait, or None to give up. `payload=True` hands over the
        JSON object whole. A parameter annotated `Context` receives the running job's context.
        """
        if fn is None:
            return lambda function: self._register(function, **options)  # type: ignore[misc]
        return self._register(fn, **options)

    def _register(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        tags: Sequence[str] | None = None,
        **rest: Any,
    ) -> Task[..., Any]:
        options = Options().changed(
            queue=queue, priority=priority, max_attempts=max_attempts, timeout=timeout, tags=tags
        )
        return self.registry.add(fn, name, options, **rest)

    # -- enqueue

    async def enqueue(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Enqueue a task, a registered name, or any importable callable; others travel pickled where switched on."""
        call = self.call(fn, *args, **kwargs)
        return await self.enqueue_call(call.task, call.options, call.args, call.kwargs)

    def call(
        self, fn: Callable[..., Any] | str | Task[..., R] | Using[..., R], /, *args: Any, **kwargs: Any
    ) -> Call[Any]:
        """A call that is not yet enqueued, for `enqueue_many`."""
        return self.registry.call(fn, args, kwargs)

    async def enqueue_many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[Handle[Any]]:
        """Enqueue many calls, one round trip per thousand. A call is `app.call(task, …)` or a tuple `(task, …)`."""
        await self.open()
        settings = self.session.fresh_settings()
        made = [self._called(call) for call in calls]
        jobs = [self.new_job(settings, call.task, call.options, call.args, call.kwargs) for call in made]
        if any(call.options.connection is not None for call in made):
            raise InvalidJob("enqueue_many does not take connection=; enqueue one by one inside your transaction")
        ids: list[str | HoldfastError] = []
        for start in range(0, len(jobs), BULK):
            part = jobs[start : start + BULK]
            try:
                ids += await self._insert_all(part)
            except HoldfastError as error:
                ids += [error] * (len(jobs) - start)
                break
        refused = [id for id in ids if isinstance(id, HoldfastError)]
        if len(refused) == len(ids) and refused:
            raise refused[0]
        handles = [
            None if isinstance(id, HoldfastError) else Handle(self, id, call.task.decode_result)
            for id, call in zip(ids, made, strict=True)
        ]
        if refused:
            raise PartlyEnqueued(handles, refused[0]) from refused[0]
        return cast("list[Handle[Any]]", handles)

    def _called(self, call: Any) -> Call[Any]:
        if isinstance(call, Call):
            return cast("Call[Any]", call)
        if isinstance(call, tuple) and call:
            return self.call(*cast("tuple[Any, ...]", call))
        raise InvalidJob(f"a call is app.call(task, …) or a tuple (task, …), not {call!r:.100}")

    async def enqueue_call(
        self, task: Task[..., R], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Handle[R]:
        """Store one call of a task as a job."""
        session = self._session
        if session is None or session.loop is not asyncio.get_running_loop():
            await self.open()
            session = self.session
        job = self.new_job(session.fresh_settings(), task, options, args, kwargs)
        if options.connection is not None:
            return Handle(self, await self.insert_bound(options.connection, job), task.decode_result)
        return Handle(self, await self._insert(job), task.decode_result)

    def new_job(
        self,
        settings: Settings,
        task: Task[..., Any],
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> NewJob:
        """The job that a call stands for, checked; nothing is stored yet."""
        codec = "json" if task.codec is None else getattr(task.codec, "name", "custom")
        return self._make(settings, task.name, task.encode(args, kwargs), codec, options)

    def _make(self, settings: Settings, name: str, payload: bytes, codec: str, options: Options) -> NewJob:
        if len(payload) > settings.max_payload:
            raise PayloadTooLarge(
                f"task {name!r}: a payload of {len(payload)} bytes is over max_payload ({settings.max_payload}); "
                "store the data elsewhere and pass its address"
            )
        if options.meta and (size := len(msgspec.json.encode(options.meta))) > settings.max_payload:
            raise PayloadTooLarge(f"task {name!r}: meta of {size} bytes is over max_payload ({settings.max_payload})")
        id, key, attempts = options.id, options.key, options.max_attempts
        return NewJob(
            self.entropy.uuid7(self.clock.now()) if id is None else id,
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
            "" if key is None else _fingerprint(name, payload, codec),
            0 if id is None else self.entropy.token(),
            settings.max_depth,
            options.tags,
            dict(options.meta) if options.meta else {},
            options.retry,
        )

    async def _insert(self, job: NewJob) -> str:
        return _or_raise((await self._insert_all([job]))[0])

    @carried
    async def _insert_all(self, jobs: Sequence[NewJob]) -> list[str | HoldfastError]:
        if self.around_enqueue:
            answers = [await self._hooked(job, len(self.around_enqueue), self._insert_one) for job in jobs]
        else:
            answers = await self._insert_jobs(jobs)
        return [self._accepted(job, answer) for job, answer in zip(jobs, answers, strict=True)]

    async def _insert_one(self, job: NewJob) -> Inserted:
        return (await self._insert_jobs([job]))[0]

    async def _insert_jobs(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        try:
            return await self.session.commit.insert(jobs)
        except OutcomeUnknown as error:
            again = all(job.key is not None or job.nonce for job in jobs)
            raise OutcomeUnknown(str(error), tuple(job.id for job in jobs), retry_safe=again) from error

    async def _hooked(self, job: NewJob, left: int, insert: Callable[[NewJob], Awaitable[Inserted]]) -> Inserted:
        if left == 0:
            return await insert(job)
        return await self.around_enqueue[left - 1](job, lambda changed: self._hooked(changed, left - 1, insert))

    async def insert_bound(self, connection: Any, job: NewJob) -> str:
        """Store a job inside the user's own transaction, on the thread that owns its connection."""
        store = self.session.store
        if not isinstance(store, Binding):
            raise ConfigError(f"the {store.name} store cannot enqueue inside your transaction (connection=)")

        async def insert(job: NewJob) -> Inserted:
            return (await store.insert_bound(connection, [job]))[0]

        return _or_raise(self._accepted(job, await self._hooked(job, len(self.around_enqueue), insert)))

    def _accepted(self, job: NewJob, answer: Inserted) -> str | HoldfastError:
        """The id of the job that stands for a call now, or why there is none."""
        outcome = answer.outcome
        if outcome == "created":
            self.events.created(job)
            return answer.id
        if outcome == "existing":
            self.events.idempotent(job, answer.id)
            return answer.id
        if outcome == "conflict":
            return KeyConflict(job.key or "", answer.id)
        return JobExists(job.id) if outcome == "exists" else QueueFull(job.queue, job.max_depth or 0)

    # -- by hand

    async def submit(self, name: str, payload: bytes, /, *, json: bool = False, **options: Any) -> Handle[Any]:
        """Store a job with a payload of raw bytes (with `json`: JSON that you made), and the options of `using`."""
        await self.open()
        chosen = Options().changed(**options)
        job = self.submission(self.session.fresh_settings(), name, payload, chosen, json=json)
        if chosen.connection is not None:
            return Handle(self, await self.insert_bound(chosen.connection, job))
        return Handle(self, await self._insert(job))

    def submission(
        self, settings: Settings, name: str, payload: bytes, options: Options, *, json: bool = False
    ) -> NewJob:
        """The job that a payload stands for, checked; nothing is stored yet."""
        if not isinstance(payload, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(f"submit takes bytes, not {type(payload).__name__}: encode it first")
        data = bytes(payload)
        if json:
            check_json(data)
        return self._make(settings, checked_name(name, "task"), data, "json" if json else "bytes", options)

    @carried
    async def claim(
        self,
        queues: Sequence[str] | str = ("default",),
        *,
        tasks: Sequence[str] | None = None,
        limit: int = 1,
        lease: float = 300.0,
    ) -> list[Claim]:
        """Claim up to `limit` jobs by hand, under one lease, lost ones recovered first; [] where there are none."""
        names = checked_names(queues, "queue")
        wanted = None if tasks is None else checked_names(tasks, "task")
        limit, lease = checked_limit(limit), checked_lease(lease)
        await self.recover()
        await self.session.tidy_now_and_then()
        return await claim_by_hand(self, names, wanted, limit, lease)

    @carried
    async def recover(self, *, holder: str | None = None) -> int:
        """Settle the claims whose lease was lost (or all of a dead `holder`'s), so that they run again; how many."""
        session = self.session
        lost = await session.store.expired(PAGE_LIMIT, holder)
        if not lost:
            return 0
        ends = [self.settlement(one.record, lifecycle.Outcome.lost(), seen_beat=one.beat) for one in lost]
        written = await asyncio.gather(*(session.commit.settle(end) for end in ends))
        settled = [(one.record, end) for one, end, ok in zip(lost, ends, written, strict=True) if ok]
        for record, end in settled:
            self.events.settled(record, end)
        self.events.swept([record for record, _ in settled])
        return len(settled)

    def settlement(self, record: Record, outcome: lifecycle.Outcome, *, seen_beat: int | None = None) -> Settlement:
        """How a claim ends, by the rules of the app and the task."""
        rules = self.session.rules
        task = self.registry.tasks.get(record.task)
        if task is not None and (task.retry is not None or task.retention is not None):
            rules = msgspec.structs.replace(
                rules,
                backoff=task.retry if isinstance(task.retry, Backoff) else rules.backoff,
                retention=rules.retention if task.retention is None else task.retention,
            )
        entropy = self.entropy
        return lifecycle.settle(
            record, outcome, rules, nonce=entropy.token(), fraction=entropy.fraction(), seen_beat=seen_beat
        )

    @carried
    async def settle(self, record: Record, outcome: lifecycle.Outcome) -> bool:
        """End a claim, fenced; False if somebody else has ended it."""
        end = self.settlement(record, outcome)
        written = await self.session.commit.settle(end)
        if written:
            self.events.settled(record, end)
        else:
            self.events.refused(record)
        return written

    @carried
    async def note(self, note: Note) -> bool:
        """Write what a running job says of itself, fenced."""
        return await self.session.commit.note(note)

    @carried
    async def beat(self, holder: Holder) -> Beat:
        """Renew a holder's lease; what it still holds."""
        return (await self.session.store.beat([holder]))[0]

    @carried
    async def leave(self, holders: Sequence[str]) -> None:
        """These holders are gone: forget them, or end the leases of those that still hold jobs."""
        await self.session.store.leave(holders)

    # -- observe

    def handle(self, id: str) -> Handle[Any]:
        """A handle on a job, from its id alone."""
        return Handle(self, id)

    @carried
    async def job(self, id: str) -> Job:
        """One job as it is now."""
        return job_seen(await self.session.record(id))

    @carried
    async def record(self, id: str) -> Record:
        """One job as the store keeps it."""
        return await self.session.record(id)

    @carried
    async def ended(self, id: str, timeout: float | None = None) -> Record:
        """The stored job once it has ended; TimeoutError where it has not in time."""
        return await self.session.ended(id, timeout)

    @carried
    async def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """A page of jobs that match, newest first."""
        where, limit = _where(states_named(state), queue, task, tag), checked_limit(limit)
        try:
            found = await self.session.store.find(where, checked_cursor(cursor), limit)
        except (ValueError, OverflowError) as error:
            if cursor is None or isinstance(error, HoldfastError):
                raise
            raise InvalidJob(f"this cursor is not one that a page gave: {cursor!r:.100}") from None
        return Page([job_seen(record) for record in found.records], found.cursor)

    @carried
    async def output(self, id: str, position: int = 0) -> list[Printed]:
        """What a job has printed from a position on (1 MiB or a little more at a time); see also `follow_output`."""
        return await self.session.store.output(id, position, OUTPUT_PAGE)

    @carried
    async def explain(self, id: str) -> Explanation:
        """Why a job is not running, in words."""
        from .explain import explain

        return await explain(self, id)

    @carried
    async def stats(self) -> Stats:
        """Counts by queue and state, and the number of live workers."""
        queues = await self.session.store.stats()
        holders = await self.session.store.holders()
        return Stats(queues, sum(1 for seen in holders if seen.alive and seen.holder.kind == "worker"))

    @carried
    async def workers(self) -> list[WorkerSeen]:
        """The live workers (and claims by hand), by node and pid."""
        holders = await self.session.store.holders()
        seen = [worker_seen(one) for one in holders if one.alive and (one.jobs or one.holder.kind == "worker")]
        return sorted(seen, key=lambda one: (one.node, one.pid, one.id))

    # -- operate

    async def cancel(self, id: str) -> bool:
        """End a waiting job, ask a running one to stop; False if it had ended already."""
        if await self._change(id, lambda record: lifecycle.cancel(record, self.session.rules)):
            return True
        return (await self.record(id)).cancel  # asked for already, and not ended

    async def retry(self, id: str) -> Job:
        """Run an ended job again, from attempt 0, its history kept; or a waiting one at once."""
        await self._change(id, lifecycle.retry)
        return await self.job(id)

    async def delete(self, id: str) -> None:
        """Remove a job that is not running."""
        await self._change(id, lifecycle.delete)

    async def annotate(self, id: str, /, **meta: Any) -> None:
        """Add to the meta of a job that lives."""
        added = checked_meta(meta)
        await self._change(id, lambda record: lifecycle.annotate(record, added))

    @carried
    async def fail(self, id: str, error: str | BaseException) -> None:
        """A monitor's word about a lost job: end its claim as failed, as its worker would have."""
        text = error_text(error)
        record = await self.session.record(id)
        if record.state != State.RUNNING:
            raise WrongState(id, record.state, "only a running job can be failed")
        if not await self.settle(record, lifecycle.Outcome.failed(text)):
            raise LeaseLost(id, record.fence)

    @carried
    async def _change(self, id: str, decide: Callable[[Record], Change | None]) -> bool:
        while True:
            record = await self.session.record(id)
            change = decide(record)
            if change is None:
                return False
            if (await self.session.commit.change([change]))[0]:
                self.events.changed(record, change)
                return True

    @carried
    async def pause(self, queue: str) -> None:
        """Stop handing out this queue's jobs; those that run go on."""
        await self.put_record("pause", checked_name(queue, "queue"), b"true")

    @carried
    async def resume(self, queue: str) -> None:
        """Hand out this queue's jobs again."""
        await self.put_record("pause", checked_name(queue, "queue"), None)

    @carried
    async def purge(
        self,
        *,
        state: str | Sequence[str] = "dead",
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        older_than: float | timedelta | None = None,
    ) -> int:
        """Delete every job that matches (the dead, unless told otherwise); running ones stay. Says how many."""
        states = states_named(state)
        if not states:
            raise InvalidJob("name the state of the jobs to purge")
        if State.RUNNING in states:
            raise InvalidJob("running jobs cannot be purged; cancel them first")
        store, commit = self.session.store, self.session.commit
        age = None if older_than is None else checked_seconds(older_than, "older_than")
        before = None if age is None else await store.now() - int(age * 1_000_000)
        where = _where(states, queue, task, tag, finished_before=before)
        removed, cursor = 0, None
        while True:
            found = await store.find(where, cursor, BULK)
            removed += sum(await commit.change([lifecycle.delete(record) for record in found.records]))
            cursor = found.cursor
            if cursor is None:
                return removed

    @carried
    async def records(self, kind: str) -> dict[str, Versioned]:
        """The small shared records of a kind."""
        return await self.session.store.records(kind)

    @carried
    async def put_record(self, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        """Set a small shared record; see `Store.put_record`."""
        written = await self.session.store.put_record(kind, name, value, expect)
        if kind == "config":
            await self.session.refresh()  # others see it within seconds, whoever sets it at once
        return written

    @property
    def config(self) -> Config:
        """Settings kept in the store, for everybody who uses it."""
        return Config(self)


class TaskMaker(Protocol):
    """What `app.task(…)` with options gives: the decorator itself."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


def _where(
    states: tuple[str, ...], queue: str | None, task: str | None, tag: str | None, *, finished_before: int | None = None
) -> Where:
    checked = [checked_filter(value, what) for value, what in ((queue, "queue"), (task, "task"), (tag, "tag"))]
    return Where(states, *checked, finished_before=finished_before)


def _noop() -> None:
    """Does nothing, durably."""


def _or_raise(id: str | HoldfastError) -> str:
    if isinstance(id, HoldfastError):
        raise id
    return id


def _fingerprint(name: str, payload: bytes, codec: str) -> str:
    if codec == "json":  # the same values in another order are the same body
        payload = msgspec.json.encode(msgspec.json.decode(payload), order="sorted")
    return hashlib.blake2b(name.encode() + b"\0" + payload, digest_size=16).hexdigest()


def _forget_parents() -> None:
    for app in list(_apps):
        app.after_fork()


os.register_at_fork(after_in_child=_forget_parents)
