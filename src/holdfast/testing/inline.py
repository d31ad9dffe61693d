"""Inline mode: a job runs where it is enqueued, with the real encoding and worker, before `enqueue` returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

from ..app import Holdfast, parts_of
from ..core.errors import HoldfastError, JobNotFound
from ..core.job import NewJob, State
from .calling_thread import BenchWorker, new_answer
from .failures import failures_logged

_under_way: ContextVar[tuple[str, ...]] = ContextVar("holdfast_inline", default=())
"""The jobs that are being run inline around this code, outermost first."""


class inline:  # noqa: N801  # a context manager that reads like a word
    """While the block runs, every job of the app runs when it is enqueued:

        with inline(app):                       # or `async with`
            handle = signup.sync.enqueue("ann@example.com")
            assert handle.result() == "welcome"

    It is encoded as JSON, stored in the app's own store, passes its hooks, and is run by a worker of this process, so
    that errors of a real run occur here too. In blocking code, plain functions run in the calling thread. A failed
    attempt is logged with its traceback, and repeated at once, without its backoff. A job that is
    due later (`delay`, `at`, `Snooze`, a sleep), or waits for a signal or in a paused queue, is not run. Jobs that
    waited in the same queue before are run too. A job enqueued in your own transaction (`connection=`) is not run: it
    does not exist yet.
    """

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._parts = parts_of(app)
        self._before: Any = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        # Every enqueue passes here, except in the user's own transactions.
        enqueue = vars(self._parts.enqueue)
        insert, self._before = self._parts.enqueue.insert_all, enqueue.get("insert_all")

        async def insert_and_run(jobs: Sequence[NewJob], how: Any = None) -> list[str | HoldfastError]:
            ids = await insert(jobs, how)
            for id in dict.fromkeys(id for id in ids if isinstance(id, str)):
                await self._parts.runtime.run(lambda _, id=id: self._run(id))
            return ids

        enqueue["insert_all"] = insert_and_run
        enqueue["only_on_loop"] = True
        runtime = vars(self._parts.runtime)
        if "new_answer" not in runtime:
            runtime["new_answer"] = new_answer
            self._undo.callback(runtime.pop, "new_answer")
        self._undo.enter_context(failures_logged(self._parts.hooks))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        enqueue = vars(self._parts.enqueue)
        enqueue.pop("insert_all", None)
        enqueue["only_on_loop"] = self._before is not None
        if self._before is not None:
            enqueue["insert_all"] = self._before

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    async def _run(self, id: str) -> None:
        """Work until the job has ended, or waits for its time, a signal or a resumed queue."""
        around = _under_way.get()
        if id in around:
            return  # the job enqueues itself by its key: it is already running
        before = _under_way.set((*around, id))
        try:
            while await self._step(id):
                pass
        except JobNotFound:
            pass  # it has ended, and its retention is 0
        finally:
            _under_way.reset(before)

    async def _step(self, id: str) -> bool:
        """Run one attempt of the job; False if it cannot be run now."""
        record = await self._parts.handles.record(id)
        if record.state == State.RUNNING:
            await asyncio.sleep(0.005)  # claimed by the worker of a concurrent enqueue
            return True
        if record.state == State.FAILED:
            await self._app.retry(id)
        elif record.state != State.QUEUED:
            return False
        await BenchWorker(self._app, [record.queue], 1, until_idle=True).run()
        after = await self._parts.handles.record(id)
        return (after.state, after.fence) != (State.QUEUED, record.fence)
