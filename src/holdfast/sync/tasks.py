"""Tasks, handles and claims for blocking code."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from ..client.claims import Claim
from ..client.enqueue import Enqueue, OpenTransaction
from ..client.runtime import Runtime
from ..core.chunks import Chunk
from ..core.errors import HoldfastError, InvalidJob
from ..core.job import NewJob
from ..core.log_lines import LogLine
from ..core.settings import Settings
from ..store.callers import refuse_blocking
from ..tasks.handle import Handle
from ..tasks.options import JobOptions, Options
from ..tasks.task import Call, Task
from ..views import Job, Progress
from .blocking import Run, blocking

P = ParamSpec("P")
R = TypeVar("R")


class SyncHandle(Generic[R]):
    """A handle for blocking code."""

    def __init__(self, run: Run, handle: Handle[R]) -> None:
        self._run = run
        self._of = handle
        self.id = handle.id

    def __repr__(self) -> str:
        return f"SyncHandle({self.id!r})"

    job = blocking(Handle[Any].job)
    wait = blocking(Handle[Any].wait)
    cancel = blocking(Handle[Any].cancel)
    output = blocking(Handle[Any].output)
    update_meta = blocking(Handle[Any].update_meta)
    mark_failed = blocking(Handle[Any].mark_failed)
    edit = blocking(Handle[Any].edit)

    def clone(
        self, *, args: Sequence[Any] | Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> SyncHandle[R]:
        """Enqueue a new job like this one, with other arguments or options; see `Handle.clone`."""
        return SyncHandle(self._run, self._run(self._of.clone, args=args, **options))

    def logs(self, *, follow: bool = False) -> Iterator[LogLine]:
        """The stored lines of all attempts; see `Handle.logs`."""
        return paged(self._run, self._of._log_pages(follow=follow))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def stream(self, position: int = 0, *, follow: bool = True) -> Iterator[Chunk]:
        """The chunks that the job emits; see `Handle.stream`."""
        return paged(self._run, self._of._chunk_pages(position, follow=follow))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def progress(self) -> Iterator[Progress]:
        """The job's progress, whenever it changes; see `Handle.progress`."""
        return paged(self._run, one_by_one(self._of.progress()))

    def result(self, timeout: float | None = None) -> R:
        """The value the job returned; see `Handle.result`."""
        return self._run(self._of.result, timeout)


def paged(run: Run, pages: AsyncIterator[list[R]]) -> Iterator[R]:
    """The items of an async generator's pages: item by item, each would cost a call to the loop.

    One that is not read to its end is closed by its own loop: the caller may be a finalizer, and must not wait.
    """

    async def next_page() -> list[R] | None:
        return await anext(pages, None)

    while (page := run(next_page)) is not None:
        yield from page


async def one_by_one(items: AsyncGenerator[R]) -> AsyncGenerator[list[R]]:
    """Pages of one item, for `paged`."""
    async with aclosing(items):
        async for item in items:
            yield [item]


class SyncEnqueue:
    """Stores jobs for blocking code. They are made on the caller's thread."""

    def __init__(self, run: Run, runtime: Runtime, enqueue: Enqueue) -> None:
        self.run = run
        self._runtime = runtime
        self._enqueue = enqueue

    def find_transaction(self) -> OpenTransaction | None:
        """The transaction that a framework has opened around the caller."""
        return self._enqueue.find_transaction()

    def call(
        self, task: Task[..., R], options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> SyncHandle[R]:
        """Store one call of a task as a job."""
        enqueue = self._enqueue
        return self._store(
            options, lambda settings: enqueue.new_job(settings, task, options, args, kwargs), task.decode_result
        )

    def many(self, calls: Iterable[Call[Any] | tuple[Any, ...]]) -> list[SyncHandle[Any]]:
        """Store many calls. They are taken from the iterable, and encoded, on the caller's thread."""
        transaction = self.find_transaction()
        if transaction is not None and transaction.connection is not None:
            drive(self._enqueue.check_bound(transaction.connection))
        many = self.run(self._enqueue.many_calls, calls)
        while jobs := many.next_page():
            if transaction is None:
                self.run(self._enqueue.store_page, many, jobs)
            elif transaction.connection is None:
                transaction.on_commit(partial(self._insert_all, jobs))
                many.answered([job.id for job in jobs])
            else:
                many.answered(drive(self._enqueue.insert_all_bound(transaction.connection, jobs)))
        return [SyncHandle(self.run, handle) for handle in many.handles(self._enqueue.handles)]

    def _insert_all(self, jobs: Sequence[NewJob]) -> None:
        """Store jobs of many calls after the commit of a transaction; raises the first error."""
        for answer in self.run(self._enqueue.insert_all, jobs):
            if isinstance(answer, HoldfastError):
                raise answer

    def handle(self, id: str) -> SyncHandle[Any]:
        """A handle on a job, from its id."""
        return SyncHandle(self.run, self._enqueue.handles.handle(id))

    def submit(self, name: str, payload: bytes, options: Options, *, json: bool) -> SyncHandle[Any]:
        """Store a job with a payload of raw bytes."""
        enqueue = self._enqueue
        return self._store(options, lambda settings: enqueue.submission(settings, name, payload, options, json=json))

    def _store(
        self, options: Options, make: Callable[[Settings], NewJob], decode: Callable[[bytes, str], R] | None = None
    ) -> SyncHandle[R]:
        """Make a job and store it; in the user's own transaction on this thread, which owns its connection."""
        refuse_blocking()
        enqueue, connection, session = self._enqueue, options.connection, self._runtime.live_session()
        transaction = self.find_transaction() if connection is None else None
        if transaction is not None and not options.replace:
            connection = transaction.connection
        if session is None:
            if connection is not None:
                drive(enqueue.check_bound(connection))
            session = self.run(self._runtime.opened)
        job = make(session.fresh_settings())
        if connection is not None:
            id = drive(enqueue.insert_bound(connection, job))
        elif transaction is not None:
            transaction.on_commit(partial(enqueue.insert_blocking, self.run, job, options))
            id = job.id
        else:
            id = enqueue.insert_blocking(self.run, job, options)
        return SyncHandle(self.run, enqueue.handles.handle(id, decode))


class SyncTask(Generic[P, R]):
    """A task for blocking code."""

    def __init__(self, enqueue: SyncEnqueue, task: Task[P, R], options: Options) -> None:
        self._enqueue = enqueue
        self._task = task
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Store a job that calls the task; durable after this returns."""
        return self._enqueue.call(self._task, self._options, args, kwargs)

    def using(self, **options: Unpack[JobOptions]) -> SyncTask[P, R]:
        """The same task with other options; see `Task.using`."""
        return SyncTask(self._enqueue, self._task, self._options.changed(options))


class SyncClaim:
    """A claim for blocking code."""

    def __init__(self, run: Run, claim: Claim) -> None:
        self._run = run
        self._of = claim
        self.payload = claim.payload
        self.fence = claim.fence

    @property
    def job(self) -> Job:
        """The job as it was when it was claimed."""
        return self._of.job

    extend = blocking(Claim.extend)
    started = blocking(Claim.started)
    complete = blocking(Claim.complete)
    fail = blocking(Claim.fail)
    release = blocking(Claim.release)
    cancel = blocking(Claim.cancel)

    @contextmanager
    def kept_alive(self) -> Generator[SyncClaim]:
        """Renew the lease while the block runs. It cannot be interrupted: settling after a loss raises LeaseLost."""
        heartbeat = self._run(self._of.heartbeat)
        heartbeat.start()
        try:
            yield self
        finally:
            heartbeat.stop()


def drive(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never suspends, in this thread."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise InvalidJob(
        "app.sync cannot enqueue with connection= and an around_enqueue hook that awaits: use the async `enqueue` with"
        " `await`"
    )
