"""The app: tasks by name, ENQUEUE, and claims made by hand; what else one can ask of it is in `operate.py`."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
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
    checked_lease,
    checked_limit,
    checked_name,
    checked_names,
    checked_seconds,
    error_text,
)
from .claim import Claim, claim_by_hand
from .clock import Clock, Entropy, SystemClock
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
from .home import carried
from .job import Beat, Holder, Inserted, NewJob, Note, Record, Settlement, State
from .observe import traces
from .oversee import Overseeing
from .registry import Registry
from .retry import Backoff, RetryRule
from .schedule import Rule, checked
from .schedules import Schedules, made_rule
from .settings import Settings, combine, from_environment
from .store.open import client_url, open_store
from .store.protocol import Binding, Store
from .sync import SyncApp
from .task import Call, Codec, Options, Task, Using
from .view import Job
from .webhooks import Webhooks

if TYPE_CHECKING:
    from .explain import Explanation

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")
OUTPUT_PAGE = 1 << 20
BULK = 1000

EnqueueHook = Callable[[NewJob, Callable[[NewJob], Awaitable[Inserted]]], Awaitable[Inserted]]
RunHook = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
ErrorHook = Callable[[BaseException, Job], object]


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


class Holdfast(Overseeing):
    """A job queue on a store, named by a URL (else HOLDFAST_URL, else sqlite:///holdfast.db) or given as an object:
    a store, or a Redis client of yours.

    `imports` names the modules whose functions may be run by name (`module:qualname`), beside the registered tasks.
    """

    def __init__(
        self,
        store: str | Store | object | None = None,
        *,
        imports: Sequence[str] = (),
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[Given],
    ) -> None:
        given: dict[str, Any] = dict(settings)
        if store is not None and not isinstance(store, str) and not hasattr(store, "write"):
            store = client_url(store)
        if isinstance(store, str):
            given["url"] = store
        start = combine(given, from_environment(os.environ), {})
        if start.cloudpickle and not start.secret:
            raise ConfigError("the cloudpickle codec signs what it stores: set secret= or HOLDFAST_SECRET")
        clock = clock or SystemClock()
        if store is None or isinstance(store, str):
            kept, self.url = open_store(start.url, clock), start.url
        else:
            kept = cast("Store", store)
            self.url = f"{kept.name}://"
        super().__init__(kept, given, clock, entropy)
        # What a name from the store may be resolved in: the module that makes the app, and those it names.
        own = inspect.currentframe()
        maker = "" if own is None or own.f_back is None else own.f_back.f_globals.get("__name__", "")
        signed = Signed(start.secret) if start.cloudpickle and start.secret else None
        self.registry = Registry(self, {maker, *imports}, signed)
        self.declared: dict[str, tuple[Task[..., Any], Rule]] = {}
        """The schedules that the code declares, by name; a worker that starts puts them into the store."""
        self.around_enqueue: list[EnqueueHook] = []
        self.around_run: list[RunHook] = []
        self.on_error: list[ErrorHook] = []
        self.sync = SyncApp(self)
        self.registry.add(_noop, "noop", Options(), built_in=True)

    def after_fork(self) -> None:
        super().after_fork()
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

    def cron(
        self,
        line: str | None = None,
        /,
        *,
        every: float | timedelta | None = None,
        tz: str = "UTC",
        name: str | None = None,
        catch_up: int = 1,
        jitter: float | timedelta = 0.0,
        overlap: str = "allow",
    ) -> Callable[[F], F]:
        """Enqueue a task by the clock: a cron line in a time zone, or `every` so many seconds.

        `catch_up`: missed runs that are made up for (0 none, 1 one for all, n up to n). `jitter`: put each run off by
        up to so many seconds. `overlap="skip"`: no run while the last one's job has not ended.
        """
        rule = checked(made_rule(line, every, tz=tz, catch_up=catch_up, jitter=jitter, overlap=overlap))

        def declare(fn: F) -> F:
            task = cast("Task[..., Any]", fn if isinstance(fn, Task) else self.task(cast("Callable[..., Any]", fn)))
            self.declared[name or task.name] = (task, rule)
            return cast("F", task)

        return declare

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
                ids += await self.insert_all(part)
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
        return _or_raise((await self.insert_all([job]))[0])

    @carried
    async def insert_all(self, jobs: Sequence[NewJob]) -> list[str | HoldfastError]:
        """Store jobs that were made before: the id of the job that stands for each now, or why there is none."""
        if not traces.wanted():
            return await self._insert_traced(jobs)
        with traces.enqueuing(jobs) as stamped:
            return await self._insert_traced(stamped)

    async def _insert_traced(self, jobs: Sequence[NewJob]) -> list[str | HoldfastError]:
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

        with traces.enqueuing([job]) as (stamped,):
            return _or_raise(self._accepted(stamped, await self._hooked(stamped, len(self.around_enqueue), insert)))

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
        wait: float = 0.0,
    ) -> list[Claim]:
        """Claim up to `limit` jobs by hand, under one lease, lost ones recovered first.

        [] where there are none, and none came within `wait` seconds.
        """
        names = checked_names(queues, "queue")
        wanted = None if tasks is None else checked_names(tasks, "task")
        limit, lease, patience = checked_limit(limit), checked_lease(lease), checked_seconds(wait, "wait")
        session, loop = self.session, asyncio.get_running_loop()
        deadline = loop.time() + patience  # the waiter's own time: a clock that a test has stopped must not stop it
        bell = session.store.listen([f"queue/{name}" for name in names]) if patience else None
        try:
            while True:
                if "sweeps" not in session.store.features:  # else whoever has the store does
                    await self.recover()
                    await session.tidy_now_and_then()
                claims = await claim_by_hand(self, names, wanted, limit, lease)
                if claims or bell is None or (left := deadline - loop.time()) <= 0:
                    return claims
                await bell.wait(min(left, session.settings.poll))
        finally:
            if bell is not None:
                bell.close()

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
    async def explain(self, id: str) -> Explanation:
        """Why a job is not running, in words."""
        from .explain import explain

        return await explain(self, id)

    @carried
    async def fail(self, id: str, error: str | BaseException) -> None:
        """A monitor's word about a lost job: end its claim as failed, as its worker would have."""
        text = error_text(error)
        record = await self.session.record(id)
        if record.state != State.RUNNING:
            raise WrongState(id, record.state, "only a running job can be failed")
        if not await self.settle(record, lifecycle.Outcome.failed(text)):
            raise LeaseLost(id, record.fence)

    @property
    def schedules(self) -> Schedules:
        """What is enqueued by the clock."""
        return Schedules(self)

    @property
    def webhooks(self) -> Webhooks:
        """Who is told how jobs end."""
        return Webhooks(self)

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
