"""Durable steps of a running job: checkpoints, steps, sleeps and waits.

`Context` has a `DurableSteps` and forwards these calls to it. All of it is one value in the store (`core/step_log.py`),
written under the claim's fence before the call returns. Every method is awaited in async code, and in a thread returns
after it is stored.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from msgspec import UNSET, Raw

from ..codec import Returns, decode_value, encode_value
from ..core import step_log as steps
from ..core.clock import MICROS, Clock
from ..core.errors import InvalidJob, OutcomeUnknown, PayloadTooLarge, StoreUnavailable
from ..core.job import Record
from ..core.operations import Note
from ..core.step_log import Memory, Step
from ..core.validation import NAME_LIMIT, checked_name, checked_seconds, checked_text
from ..core.waiting import Waiting
from .active_steps import ActiveSteps
from .claim_notes import WriteNote, in_a_loop, run_on, save, stored

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("holdfast")
RESEND_PAUSE = 0.5
"""Seconds before a write that a run must not lose is retried: a step, or the end of a job."""
MIN_SIGNAL_WAIT = 1.0
"""Minimum seconds for which a job waits for a signal, so that one that was sent before is found."""
RECHECK_AFTER = 60.0
"""Seconds after which a job that waits for a signal runs again, unless the signal was looked up after the wait was
written: the process that was to do so may have crashed."""


class Suspended(BaseException):
    """Raised inside a task that sleeps or waits: the run ends here, and resumes after it later.

    Not an error, so `except Exception` does not catch it.
    """

    def __init__(self, delay: float, waiting_for: Waiting | None = None) -> None:
        super().__init__(f"the job waits for {waiting_for}" if waiting_for else f"the job sleeps for {delay:g} s")
        self.delay = delay
        self.waiting_for = waiting_for


class StepResultLost(InvalidJob):
    """A step has run, but its result cannot be stored. The job ends dead: another attempt would run the step again."""


class DurableSteps:
    """The durable part of a job's context. `Context` documents each method for users."""

    def __init__(
        self, record: Record, write_note: WriteNote, *, loop: asyncio.AbstractEventLoop, clock: Clock, max_payload: int
    ) -> None:
        self._record = record
        self._write_note = write_note
        self._loop = loop
        self._clock = clock
        self._born = clock.monotonic()
        self._max_payload = max_payload
        self._memory = steps.read(record.checkpoint)
        self._saves = record.saves
        self._saving = asyncio.Lock()
        self._active = ActiveSteps()
        self._used: set[tuple[str, str]] = set()
        self._sleeps = 0

    @property
    def last_checkpoint(self) -> Any:
        value = self._memory.value
        return None if value is UNSET else decode_value(bytes(value))

    def checkpoint(self, value: Any) -> Awaitable[None]:
        data = encode_value(value, exact=True, what="a checkpoint")
        return stored(self._remember("a checkpoint", lambda memory: memory.with_value(data)), self._loop)

    def step(self, name: str, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        self._use("step", checked_text(name, "a step's name", NAME_LIMIT), "give each step a different name")
        if not callable(fn):
            raise InvalidJob(f"step {name!r} takes a function and its arguments, not {fn!r:.100}")
        returns, done = Returns(fn), self._memory.find("step", name)
        if done is not None:
            return self._after(None, lambda: returns.decode(bytes(done.result)))
        if in_a_loop():
            return self._run_step(name, fn, args, kwargs, returns)
        if inspect.iscoroutinefunction(inspect.unwrap(fn)):
            raise InvalidJob(
                f"step {name!r} is an async function, but its task is a plain function: make the task async"
            )
        ended = self._begin(name)
        try:
            with self._active.inside():
                value = fn(*args, **kwargs)
            data = _encoded(name, returns, value)
            return self._after(self._keep(name, data), lambda: returns.decode(data))
        finally:
            ended.set_result(None)

    def sleep(self, how_long: timedelta | float = 0.0, /, **parts: float) -> Any:
        self._check_between_steps("sleep")
        try:
            seconds = checked_seconds(how_long, "sleep") + timedelta(**parts).total_seconds()
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidJob(f"ctx.sleep takes seconds, a timedelta, or keywords such as days=3: {error}") from None
        seconds = checked_seconds(seconds, "sleep")
        self._sleeps += 1
        step = self._memory.find("sleep", str(self._sleeps))
        if step is not None:
            return self._after(None, lambda: self._sleep_on(step))
        begun = Step("sleep", str(self._sleeps), until=self._now() + int(seconds * MICROS))
        return self._after(self._remember("a sleep", _with(begun)), lambda: self._sleep_on(begun))

    def wait_for(self, name: str, timeout: float | timedelta | None = None) -> Any:
        self._check_between_steps("wait for a signal")
        self._use(
            "signal", checked_name(name, "signal"), "keep the value of the first wait, or use another signal name"
        )
        limit = None if timeout is None else max(MIN_SIGNAL_WAIT, checked_seconds(timeout, "timeout"))
        step, now = self._memory.find("signal", name), self._now()
        if step is not None and step.at is not None:
            return self._after(None, lambda: _answer(step))
        if step is None and limit is not None:
            begun = Step("signal", name, until=now + int(limit * MICROS))
            return self._after(self._remember("a wait", _with(begun)), lambda: self._wait_on(begun))
        return self._after(None, lambda: self._wait_on(step or Step("signal", name)))

    # -- internal

    def _use(self, kind: str, name: str, advice: str) -> None:
        if (kind, name) in self._used:
            raise InvalidJob(f"{kind} {name!r} was already used in this run of job {self._record.id!r}: {advice}")
        self._used.add((kind, name))

    def _check_between_steps(self, what: str) -> None:
        if self._active.is_here:  # the next run would repeat what the step has done so far
            raise InvalidJob(f"a step of job {self._record.id!r} cannot {what}: {what} between two steps instead")

    def _begin(self, name: str) -> Future[object]:
        """A step is about to run: its entry must fit into the limit, since its result must be stored."""
        nothing = Step("step", name, at=self._now())
        self._written(f"step {name!r} was not run: its entry", self._memory.with_step(nothing))
        return self._active.begin()

    def _now(self) -> int:
        """The store's time, estimated from when the job was claimed."""
        return (self._record.started_at or 0) + int((self._clock.monotonic() - self._born) * MICROS)

    def _sleep_on(self, step: Step) -> None:
        left = ((step.until or 0) - self._now()) / MICROS
        if left > 0:
            raise Suspended(left)

    def _wait_on(self, step: Step) -> None:
        # Even after the timeout: whether the signal has arrived is checked in the store after the wait is written.
        left = RECHECK_AFTER if step.until is None else max(MIN_SIGNAL_WAIT, (step.until - self._now()) / MICROS)
        raise Suspended(min(left, RECHECK_AFTER), Waiting("signal", step.name))

    async def _run_step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], returns: Returns
    ) -> Any:
        ended = self._begin(name)
        try:
            with self._active.inside():
                if inspect.iscoroutinefunction(inspect.unwrap(fn)):
                    value = await fn(*args, **kwargs)
                else:
                    value = await asyncio.to_thread(fn, *args, **kwargs)
                    if inspect.isawaitable(value):
                        value = await value
            data = _encoded(name, returns, value)
        except BaseException:
            ended.set_result(None)
            raise
        keeping = asyncio.ensure_future(run_on(self._loop, self._keep(name, data)))
        keeping.add_done_callback(lambda kept: ended.set_result(kept.cancelled() or kept.exception()))
        await asyncio.shield(keeping)  # the step is done, even if the run is stopped now
        return returns.decode(data)

    async def _keep(self, name: str, data: bytes) -> None:
        """Store the result of a step: the step has run, so the write is retried until the store answers."""
        done = Step("step", name, at=self._now(), result=Raw(data))
        while True:
            try:
                return await self._remember(f"the result of step {name!r}", _with(done))
            except PayloadTooLarge as error:
                raise _lost(name, error) from error
            except (StoreUnavailable, OutcomeUnknown) as error:
                logger.warning(
                    "job %s: step %r has run, but its result is not stored yet, retrying: %s",
                    self._record.id,
                    name,
                    error,
                )
                await asyncio.sleep(RESEND_PAUSE)

    async def _remember(self, what: str, change: Callable[[Memory], Memory]) -> None:
        async with self._saving:  # each write contains all steps
            memory, record = change(self._memory), self._record
            data = self._written(what, memory)
            self._saves += 1  # also if the outcome of the last one is unknown: it may still arrive
            note = Note(record.id, record.seq, record.fence, record.token, checkpoint=data, saves=self._saves)
            await save(self._write_note, note)
            self._memory = memory

    def _written(self, what: str, memory: Memory) -> bytes:
        data = steps.write(memory) or b""
        if len(data) > self._max_payload:
            limit = f"max_payload ({self._max_payload})"
            raise PayloadTooLarge(
                f"{what} brings the stored steps of job {self._record.id!r} to {len(data)} bytes, over {limit}, and was"
                " not stored: store less, or raise max_payload"
            )
        return data

    # -- async code and threads

    def _after(self, saving: Coroutine[Any, Any, None] | None, then: Callable[[], T]) -> T | Awaitable[T]:
        """Store, then continue: awaitable in async code, in place elsewhere.

        If the job would be suspended, its steps in progress end first; then `then` is called again.
        """
        if in_a_loop():
            return self._awaited_after(saving, then)
        if saving is not None:
            asyncio.run_coroutine_threadsafe(saving, self._loop).result()
        while True:
            try:
                return then()
            except Suspended as suspended:
                wait(self._active.rest(suspended))

    async def _awaited_after(self, saving: Coroutine[Any, Any, None] | None, then: Callable[[], T]) -> T:
        if saving is not None:
            await run_on(self._loop, saving)
        while True:
            try:
                return then()
            except Suspended as suspended:
                await asyncio.sleep(0)  # a step that was called at the same time may begin
                beside = self._active.rest(suspended)
            await _all_of(beside)

    # -- for the worker

    async def let_end(self, error: BaseException) -> None:
        """The task has raised this, while other steps may be in progress: wait for them."""
        if beside := self._active.end(error):
            await _all_of(beside)


async def _all_of(steps: list[Future[object]]) -> None:
    await asyncio.wait([asyncio.wrap_future(step) for step in steps])


def _with(step: Step) -> Callable[[Memory], Memory]:
    return lambda memory: memory.with_step(step)


def _encoded(name: str, returns: Returns, value: Any) -> bytes:
    try:
        return returns.encode(value)
    except InvalidJob as error:
        raise _lost(name, error) from error


def _lost(name: str, error: InvalidJob) -> StepResultLost:
    return StepResultLost(f"step {name!r} has run, but its result cannot be stored: {error}")


def _answer(step: Step) -> Any:
    if step.late:
        raise TimeoutError(f"signal {step.name!r} did not arrive before its timeout")
    return decode_value(bytes(step.result))
