"""Makes the dependencies of a call before it, and cleans them up after it.

1. Plain ones are made where the function runs: in its thread, or for an async function on the loop. Async ones are made
   on the worker's loop.
2. Those of the scope "worker" are made once, by the `WorkerScope` that all jobs of a worker share.
3. They are cleaned up in reverse order. A generator gets the exception of the call, and cannot suppress it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...client.loop_calls import LOOP_EVERY
from ...tasks.claim_notes import on_loop as runs_on

if TYPE_CHECKING:
    from ...tasks.context import Context
    from ...tasks.depends import Dependencies, Provider

logger = logging.getLogger("holdfast")


Leave = Callable[[type[BaseException] | None, BaseException | None, Any], Any]
"""Leaves a context manager."""
Do = Callable[["Provider", Callable[[], Any], Leave | None], Awaitable[Any]]
Wait = Callable[[concurrent.futures.Future[Any]], Awaitable[Any]]


class InDependency(str):
    """A note of an exception: the dependency that raised it."""

    __slots__ = ()


def _note(error: BaseException, text: str) -> None:
    if text not in getattr(error, "__notes__", ()):  # the same object may be raised again
        error.add_note(InDependency(text))


def injected(
    dependencies: Dependencies,
    fn: Callable[..., Any],
    *,
    on_loop: bool,
    context: Context | None,
    loop: asyncio.AbstractEventLoop,
    worker: WorkerScope | None = None,
) -> Callable[..., Any]:
    """A task's function with its dependencies. `loop`: for async dependencies of a plain function.

    Without a `worker` scope, everything is made for each call.
    """
    if on_loop:
        make = partial(_Stack, _on_loop, asyncio.wrap_future, context, worker)
        return partial(_call, make, dependencies, partial(_with_steps, context, fn))
    return partial(_called, loop, partial(_Stack, context=context, worker=worker), dependencies, fn)


async def _call(
    make: Callable[[], _Stack], dependencies: Dependencies, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    stack, value, error = make(), None, None
    try:
        for name, provider in dependencies.needs.items():
            kwargs[name] = await stack.value(provider)
        value = await fn(*args, **kwargs)
    except BaseException as raised:  # noqa: BLE001  # raised again after the cleanup
        error = raised
    try:
        if (error := await stack.unwind(error)) is not None:
            raise error
    finally:
        del error  # its traceback refers to this frame
    return value


def _called(
    loop: asyncio.AbstractEventLoop,
    make: Callable[..., _Stack],
    dependencies: Dependencies,
    fn: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Run `_call` in a thread, where none of its awaits suspends it."""
    thread = _FromThread(loop)
    try:
        _call(partial(make, thread.do, thread.wait), dependencies, partial(_plain, fn), *args, **kwargs).send(None)
    except StopIteration as done:
        return done.value
    finally:
        thread.end()
    raise AssertionError("a plain function was suspended: this is an error of Holdfast, please report it")


async def _plain(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)


async def _with_steps(context: Context | None, fn: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any) -> Any:
    """Call an async function; if it raises, its steps in progress end before its dependencies are cleaned up."""
    try:
        return await fn(*args, **kwargs)
    except Exception as error:
        if context is not None:
            await context.let_steps_end(error)
        raise


class _Stack:
    """Dependencies that were made, and how to clean them up.

    `do`: calls a function of a dependency, where such functions are called; the `Leave`, if any, undoes it.
    `wait`: waits for a dependency of the `worker` scope.
    """

    def __init__(self, do: Do, wait: Wait, context: Context | None = None, worker: WorkerScope | None = None) -> None:
        self._do = do
        self._wait = wait
        self._context = context
        self._worker = worker
        self.values: dict[Any, Any] = {}
        self._exits: list[tuple[Provider, Leave]] = []
        self.cleaned: Provider | None = None
        """The dependency that is cleaned up now."""

    async def value(self, provider: Provider) -> Any:
        """The value of a dependency; the same for all that need it."""
        shared = self._worker if provider.scope == "worker" else None
        values = self.values if shared is None else shared.values
        if provider.key in values:
            return values[provider.key]
        if shared is not None:
            return await self._wait(shared.value(provider))
        given = {name: await self.value(need) for name, need in provider.needs.items()}
        context = () if provider.context is None else (self._context,)
        try:
            value = values[provider.key] = await self._make(provider, *context, **given)
        except Exception as error:
            _note(error, f"in dependency {provider.label}")
            raise
        return value

    async def _make(self, provider: Provider, /, *context: Any, **given: Any) -> Any:
        if provider.manager is None:
            return await self._do(provider, partial(provider.fn, *context, **given), None)
        manager = provider.manager(*context, **given)
        enter, leave = (
            (manager.__aenter__, manager.__aexit__) if provider.is_async else (manager.__enter__, manager.__exit__)
        )
        value = await self._do(provider, enter, leave)
        self._exits.append((provider, leave))
        return value

    async def unwind(self, error: BaseException | None) -> BaseException | None:
        """Clean up, last made first; returns the exception that ends the call: the given one, or that of a cleanup."""
        trace = None if error is None else error.__traceback__
        self.values.clear()
        while self._exits:
            provider, leave = self._exits.pop()
            self.cleaned = provider
            try:
                await self._do(provider, partial(leave, None if error is None else type(error), error, trace), None)
            except BaseException as raised:  # noqa: BLE001  # the others are cleaned up too
                if raised is not error:
                    _note(raised, f"in the cleanup of dependency {provider.label}")
                    error, trace = raised, raised.__traceback__
        return None if error is None else error.with_traceback(trace)


async def _on_loop(provider: Provider, fn: Callable[[], Any], _: Leave | None, /) -> Any:
    """For async functions: all is done on their loop."""
    return await fn() if provider.is_async else fn()


class _FromThread:
    """For plain functions: async dependencies are made on the loop, while this thread waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._keeper: _Keeper | None = None

    def end(self) -> None:
        if self._keeper is not None:
            with suppress(RuntimeError):  # the loop was closed, and ended it
                self._keeper.end()

    async def do(self, provider: Provider, fn: Callable[[], Any], _: Leave | None, /) -> Any:
        if not provider.is_async:
            return fn()
        self._keeper = self._keeper or _Keeper(self._loop)
        return await self.wait(self._keeper.run(fn))

    async def wait(self, future: concurrent.futures.Future[Any]) -> Any:
        if runs_on(self._loop):
            raise RuntimeError(
                "a plain function on the event loop cannot wait for an async dependency:"
                " make the task or the test async"
            )
        while not future.done():
            if not self._loop.is_running() or sys.is_finalizing():
                raise RuntimeError("the worker's event loop ended, so an async dependency was not made or cleaned up")
            with suppress(TimeoutError):
                future.exception(LOOP_EVERY)
        return future.result()


async def _off_loop(provider: Provider, fn: Callable[[], Any], leave: Leave | None, /) -> Any:
    """For the scope "worker": a slow plain dependency, such as a large model, does not block the loop."""
    if provider.is_async:
        return await fn()
    called = _in_thread(fn)
    try:
        return await asyncio.wrap_future(called)
    except asyncio.CancelledError:
        if leave is not None:  # the set-up continues in its thread
            called.add_done_callback(partial(_undo, provider, leave))
        raise


def _in_thread(fn: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Call a function in a thread that does not keep the process; a caller that waits for it cannot cancel it."""
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
    answer.set_running_or_notify_cancel()

    def call() -> None:
        try:
            answer.set_result(fn())
        except StopIteration as raised:  # a future cannot carry it
            error = RuntimeError(
                f"the dependency raised {raised!r}, which asyncio cannot pass on: raise another exception"
            )
            error.__cause__ = raised
            answer.set_exception(error)
        except BaseException as error:  # noqa: BLE001  # passed on
            answer.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(call,), name="holdfast-dependency", daemon=True).start()
    return answer


def _undo(provider: Provider, leave: Leave, made: concurrent.futures.Future[Any]) -> None:
    """Clean up after a set-up that ended when its worker had stopped."""

    def log(left: concurrent.futures.Future[Any]) -> None:
        if (error := left.exception()) is not None:
            logger.error("the cleanup of dependency %s failed: correct its code", provider.label, exc_info=error)

    if made.exception() is None:
        _in_thread(partial(leave, None, None, None)).add_done_callback(log)


class WorkerScope:
    """The dependencies that a worker makes once, one after another. A failed one is made again when next needed."""

    def __init__(self) -> None:
        self._stack = _Stack(_off_loop, asyncio.wrap_future)
        self.values = self._stack.values
        """By key, those that were made."""
        self._keeper = _Keeper(asyncio.get_running_loop(), contextvars.copy_context())
        self._closed = False

    def value(self, provider: Provider) -> concurrent.futures.Future[Any]:
        """The value of a dependency. May be called from any thread."""
        return self._keeper.run(partial(self._value, provider))

    async def _value(self, provider: Provider) -> Any:
        if self._closed:
            raise RuntimeError(f"the worker has stopped, so dependency {provider.label} was not made")
        return await self._stack.value(provider)

    async def close(self) -> None:
        """Clean up, last made first; errors are logged."""
        self._closed = True
        self._keeper.interrupt()
        unwinding = self._keeper.run(partial(self._stack.unwind, None))
        self._keeper.end()
        error = await asyncio.wrap_future(unwinding)
        if error is not None:
            logger.error(
                "the cleanup of a worker's dependency failed: a note below the traceback names it", exc_info=error
            )

    def interrupt(self) -> None:
        """Cancel the cleanup that runs now; the others follow."""
        cleaned = self._stack.cleaned
        logger.error(
            "the %s took longer than the grace period and was cancelled: make it faster, or raise --grace",
            "set-up of a dependency" if cleaned is None else f"cleanup of dependency {cleaned.label}",
        )
        self._keeper.interrupt()


class _Keeper:
    """An asyncio task that runs coroutines for others, one after another: a generator ends in the task it began in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context | None = None) -> None:
        self._loop = loop
        self._context = context
        self._calls: asyncio.Queue[tuple[Callable[[], Any], concurrent.futures.Future[Any]] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        self._interrupted = False

    def run(self, fn: Callable[[], Coroutine[Any, Any, Any]]) -> concurrent.futures.Future[Any]:
        """Run a coroutine function. May be called from any thread."""
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        answer.set_running_or_notify_cancel()  # from here on, the one who waits cannot cancel it
        self._loop.call_soon_threadsafe(self._put, (fn, answer))
        return answer

    def end(self) -> None:
        """End after all coroutines so far."""
        self._loop.call_soon_threadsafe(self._put, None)

    def interrupt(self) -> None:
        """Cancel the coroutine that runs now; on the loop."""
        if self._task is not None and self._busy:
            self._interrupted = self._task.cancel()

    def _put(self, call: tuple[Callable[[], Any], concurrent.futures.Future[Any]] | None) -> None:
        if self._task is None or self._task.done():  # not yet begun; or cancelled, as all tasks of a loop that ends
            self._task = self._loop.create_task(self._work(), context=self._context)
        self._calls.put_nowait(call)

    async def _work(self) -> None:
        while True:
            try:
                call = await self._calls.get()
            except asyncio.CancelledError:
                if self._calls.empty():
                    raise
                continue
            if call is None:
                return
            fn, answer = call
            self._busy = True
            try:
                answer.set_result(await fn())
            except BaseException as error:  # noqa: BLE001  # passed on; SystemExit here would end the loop
                answer.set_exception(error)
            self._busy = False
            del call, fn, answer  # not kept until the next call
            assert self._task is not None
            if self._interrupted:
                self._interrupted = False
                self._task.uncancel()
            if self._task.cancelling() and self._calls.empty():
                return
