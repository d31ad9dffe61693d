"""The context of a running job, and the exceptions by which a task ends its run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from ..codec import encode_value
from ..codec.meta import checked_meta
from ..core.clock import Clock
from ..core.errors import ConfigError, InvalidJob, PayloadTooLarge
from ..core.job import Record
from ..core.log_lines import TASK_LOGGER
from ..core.operations import Note
from ..core.validation import checked_seconds
from ..observe.job_fields import fields_of
from ..observe.task_output import JobLogger
from ..views import Job, Progress, job_view
from .claim_notes import WriteNote, on_loop, save, stored
from .durable_steps import DurableSteps
from .stream_writer import StreamWriter

if TYPE_CHECKING:
    from .completion import Completion, OwnTransaction
    from .handle import Handle
    from .options import Options

P = ParamSpec("P")
T = TypeVar("T")
MAX_REST = 86400.0
"""Maximum seconds of a reported rate limit: one day, since it cannot be shortened."""


class Work(Protocol):
    """What can be added to a flow: a task, a task with options, or a call of one."""

    @property
    def options(self) -> Options:
        """How its job is enqueued."""
        ...


class GrowingFlows(Protocol):
    """Adds a job to the flow of a running job."""

    def add(
        self, record: Record, work: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /, *, after: Iterable[str]
    ) -> Coroutine[Any, Any, Handle[Any]]:
        """The new job's handle."""
        ...


class Retry(Exception):
    """Raised by a task: this attempt failed, try again (after `after` seconds, else after the usual backoff)."""

    def __init__(self, reason: str = "the task asked for a retry", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else checked_seconds(after, "Retry(after=…)")


class Snooze(Exception):
    """Raised by a task: run again later, uncharged."""

    def __init__(self, until: datetime | timedelta | float) -> None:
        if isinstance(until, datetime) and until.tzinfo is None:
            raise InvalidJob(
                f"Snooze(until=…) needs a datetime with a time zone, a timedelta or seconds, not {until!r}"
            )
        super().__init__(f"snoozed until {until}")
        self.until = until if isinstance(until, datetime) else checked_seconds(until, "Snooze(until=…)")


class Discard(Exception):
    """Raised by a task: no further attempt; the job ends dead, with this reason."""

    def __init__(self, reason: str = "discarded") -> None:
        super().__init__(reason)


class Context:
    """The context of a running job. A task gets it by annotating a parameter with `Context`.

    Usable from async tasks and from thread tasks; all its writes are fenced. A `DurableSteps` implements
    `checkpoint`, `step`, `sleep` and `wait_for`.
    """

    def __init__(
        self,
        record: Record,
        write_note: WriteNote,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        max_payload: int,
        max_output: int,
        progress_soon: Callable[[Context], None],
        completion: Completion | None = None,
        flows: GrowingFlows | None = None,
        state: Any = None,
    ) -> None:
        self._record = record
        self.state = state
        """What the app's lifespan has yielded in this worker; None in a process of the job's own."""
        self._write_unchecked = write_note
        self._loop = loop
        self._steps = DurableSteps(record, self._write_note, loop=loop, clock=clock, max_payload=max_payload)
        self.completion = completion
        self._flows = flows
        self.completed = False
        """Whether the job's end has already been written, together with the task's own writes."""
        self.in_transaction = False
        """Whether the task is in the block of a transaction that other writes wait for."""
        self.max_output = max_output
        self._max_payload = max_payload
        self._stream: StreamWriter | None = None
        self._progress_soon = progress_soon
        self._stopped = False
        self.stopped_by: str | None = None
        self.saw_cancelled = False
        self.progress_busy = False
        self._job: Job | None = None
        self.progress_seen: bytes | None = None

    @property
    def job(self) -> Job:
        """The job as it was when it was claimed."""
        if self._job is None:
            self._job = job_view(self._record)
        return self._job

    @property
    def log(self) -> JobLogger:
        """A logger whose records have this job's id, task, attempt and worker."""
        return JobLogger(logging.getLogger(TASK_LOGGER), fields_of(self._record))

    @property
    def attempt(self) -> int:
        """The number of this charged start, from 1."""
        return self._record.attempt

    @property
    def fence(self) -> int:
        """Increases with every claim of this job. Pass it to systems that can reject an older one."""
        return self._record.fence

    @property
    def cancelled(self) -> bool:
        """Whether this run should stop: cancelled, timed out, its lease lost, or its worker shutting down.

        Async tasks are interrupted; a task in a thread must check this regularly.
        """
        self.saw_cancelled = self.saw_cancelled or self._stopped
        return self._stopped

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report the progress of the job. Cheap: only the newest is written, a few times a second."""
        self.progress_seen = encode_value(Progress(done, total, note), what="progress")
        self._call_on_loop(self._progress_soon, self)

    def emit(self, chunk: Any) -> Awaitable[None]:
        """Add a chunk to the job's stream, which `handle.stream()` reads anywhere; any value that JSON can represent.

        Await it in async code; in a thread it returns once the chunk is on its way, in its order. It waits only while
        more than 256 KiB are not written yet, and all chunks are stored before the outcome. Of a job's stream, the
        newest `max_output` bytes are kept. Raises LeaseLost if this claim has ended meanwhile: stop working then.
        """
        self.refuse_in_transaction()
        data = encode_value(chunk, what="the chunk")
        if len(data) > self._max_payload:
            raise PayloadTooLarge(
                f"job {self._record.id}: a chunk of {len(data)} bytes is over max_payload ({self._max_payload}) and was"
                " not emitted: emit smaller chunks, or raise max_payload"
            )
        return stored(self._emit(data + b"\n"), self._loop)

    async def _emit(self, line: bytes) -> None:
        if self._stream is None:
            self._stream = StreamWriter(self._record, self._write_unchecked, self.max_output)
        await self._stream.put(line)

    @property
    def last_checkpoint(self) -> Any:
        """The last saved checkpoint, of an earlier attempt or this one; None if there is none."""
        return self._steps.last_checkpoint

    def checkpoint(self, value: Any) -> Awaitable[None]:
        """Save a value that the next attempt can read. Await it in async code; in a thread it returns when stored.

        Raises LeaseLost if this claim has ended meanwhile: stop working then.
        """
        return self._steps.checkpoint(value)

    def step(self, name: str, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run a function once and store its result: a later attempt gets the result without running it again.

        Await it in async code, where a plain function runs in a thread; in a thread it runs in place. The result is
        stored as JSON, and decoded by the function's annotation. A function that raises is not stored, and one that was
        interrupted by a crash runs again. The name must be unique in the run.
        """
        return self._steps.step(name, fn, *args, **kwargs)

    def sleep(self, how_long: timedelta | float = 0.0, /, **parts: float) -> Any:
        """Suspend the job, and resume at this line later: `await ctx.sleep(days=3)`, a timedelta, or seconds.

        `parts` are keywords of timedelta. The end of the sleep is stored: a crash or a retry does not restart it. Steps
        in progress are waited for first.
        """
        return self._steps.sleep(how_long, **parts)

    def wait_for(self, name: str, timeout: float | timedelta | None = None) -> Any:
        """Suspend the job until this signal is sent (`app.signal`), now or before, and return its value.

        TimeoutError if it does not arrive in time, which is stored too. Steps in progress are waited for first.
        """
        return self._steps.wait_for(name, timeout)

    def update_meta(self, /, **meta: Any) -> Awaitable[None]:
        """Merge into the job's meta. Await it in async code; in a thread it returns after it is stored."""
        record, added = self._record, checked_meta(meta)
        note = Note(record.id, record.seq, record.fence, record.token, meta=added)
        return stored(save(self._write_note, note), self._loop)

    def report_rate_limit(self, retry_after: float | timedelta) -> Awaitable[None]:
        """Start no job of this job's limit key for `retry_after` seconds, at most one day: after an answer 429.

        This job itself continues; raise Retry to run it again later. Await it in async code; in
        a thread it returns once stored.
        """
        record, rest = self._record, checked_seconds(retry_after, "retry_after", positive=True)
        if rest > MAX_REST:
            raise InvalidJob(
                f"report_rate_limit(retry_after=…) must be at most {MAX_REST:g} seconds (one day),"
                f" not {retry_after!r:.100}"
            )
        if record.limit_key is None:
            raise ConfigError(
                f"job {record.id!r} of task {record.task!r} has no limit, so its starts cannot be paused: give the"
                " task a limit=, or its queue a limit in queue_limits="
            )
        note = Note(record.id, record.seq, record.fence, record.token, rest=rest)
        return stored(save(self._write_note, note), self._loop)

    def transaction(self, result: Any = None) -> OwnTransaction:
        """A connection to the store's database, inside a transaction that commits together with the job's success.

        `async with` on Postgres (an asyncpg connection) and SQLite (a `sqlite3.Connection`); `with` in plain functions
        on SQLite. When the block ends, the success (with `result`, or what it returns if it is a function) is written
        under this claim's fence, and everything commits: effects in this database happen exactly once. LeaseLost, and
        nothing is kept, if the claim was ended meanwhile. An exception rolls back and fails the attempt as usual. Let
        the task end with it. On SQLite all other writes to the file wait for the block; keep it short.
        """
        if self.completion is None:
            raise ConfigError(
                "ctx.transaction() needs a SQLite or Postgres store; with another store, record ctx.job.id in your own"
                " transaction, and skip a job that is recorded there"
            )
        from .completion import OwnTransaction  # only where it is used

        return OwnTransaction(self, self._record, self.completion, self._loop, result)

    def unwritten(self) -> Sequence[Note]:
        """The chunks of the stream that are not stored yet, to be written with the job's success."""
        if self._stream is None or on_loop(self._loop):
            return () if self._stream is None else self._stream.pending()
        return asyncio.run_coroutine_threadsafe(self._unwritten(), self._loop).result()

    async def _unwritten(self) -> Sequence[Note]:
        return self.unwritten()

    def refuse_in_transaction(self) -> None:
        """Raise ConfigError for a write that would wait for the end of the task's own transaction."""
        if self.in_transaction:
            raise ConfigError(
                f"job {self._record.id}: nothing was written: this call is inside a ctx.transaction() block, and"
                " would wait for the block's end; enqueue with the block's connection"
                " (`task.using(connection=connection).enqueue(…)`), and do everything else before or after the block"
            )

    def _write_note(self, note: Note) -> Awaitable[bool]:
        self.refuse_in_transaction()
        return self._write_unchecked(note)

    def add_to_flow(self, work: Work, /, *args: Any, after: Iterable[Handle[Any]] = (), **kwargs: Any) -> Any:
        """Add a job to the flow of this job; await it in async code. Returns the new job's handle.

        It starts at once; or, if it comes `after` other jobs or takes their results (their handles as arguments), after
        this job and those have ended. Give it a key (`task.using(key=…)`) if another attempt must not add it again.
        """
        if self._flows is None:
            raise ConfigError(
                "ctx.add_to_flow() does not work for a job that runs in its own process: use run_in='thread' or an"
                " async task"
            )
        return self._awaited(self._flows.add(self._record, work, args, kwargs, after=[each.id for each in after]))

    def _awaited(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T] | T:
        """A coroutine of the app: awaitable on its loop; on any other thread this waits for it."""
        if on_loop(self._loop):
            return coroutine
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _call_on_loop(self, function: Callable[[Context], None], argument: Context) -> None:
        if on_loop(self._loop):
            function(argument)
        else:
            self._loop.call_soon_threadsafe(function, argument)

    # -- for the worker

    def progress_note(self) -> Note | None:
        """The newest unwritten progress, as a note."""
        seen, self.progress_seen = self.progress_seen, None
        if seen is None:
            return None
        record = self._record
        return Note(record.id, record.seq, record.fence, record.token, progress=seen)

    def end_stream(self) -> Sequence[Note]:
        """The run has ended: the chunks to be written before its outcome."""
        return () if self._stream is None else self._stream.end()

    async def finish_stream(self) -> None:
        """Wait until all chunks are written, or the claim has ended."""
        if self._stream is not None:
            await self._stream.finish()

    def say(self, **fields: Any) -> Awaitable[bool]:
        """Write a note of these fields, on the loop; False if the claim has ended."""
        record = self._record
        return self.write(Note(record.id, record.seq, record.fence, record.token, **fields))

    def write(self, note: Note) -> Awaitable[bool]:
        """Write a note that was made elsewhere."""
        return self._write_note(note)

    async def let_steps_end(self, error: BaseException) -> None:
        """Wait for steps in progress after the task has raised this."""
        await self._steps.let_end(error)

    def ask_to_stop(self, why: str) -> None:
        """Make `cancelled` true."""
        self._stopped = True
        self.stopped_by = why
