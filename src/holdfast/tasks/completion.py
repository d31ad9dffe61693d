"""`ctx.transaction()`: a task's own writes and its job's success in one transaction of the store's database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from ..core.errors import ConfigError, PayloadTooLarge
from ..core.job import NewJob, Record
from ..core.operations import Change, Note, Settlement
from ..observe.task_output import current
from ..store.group_commit import Guard, guard
from ..store.protocol import Transacting
from .claim_notes import in_a_loop


class Completion:
    """What the jobs of one process need to complete themselves. `success` is the settlement of a success, by claim."""

    def __init__(
        self,
        store: Transacting,
        success: Callable[[Record], Settlement],
        encode_result: Callable[[Record, Any], bytes | None],
        max_payload: Callable[[], int],
    ) -> None:
        self.store = store
        self.success = success
        self._encode_result = encode_result
        self._max_payload = max_payload

    def begin(
        self, record: Record, result: Any, unwritten: Callable[[], Sequence[Note]]
    ) -> AbstractAsyncContextManager[Any]:
        """A connection inside a transaction, whose end completes the job with `result`, or with what that returns.

        `unwritten`: the chunks of its stream that are to be written with its end, as is the rest of its output.
        """
        log = current.get()
        return self.store.transaction(
            lambda: self._end(record, result() if callable(result) else result),
            unwritten if log is None else lambda: [*log.pending(), *unwritten()],
        )

    def _end(self, record: Record, result: Any) -> Settlement:
        data, limit = self._encode_result(record, result), self._max_payload()
        if data is not None and len(data) > limit:
            raise PayloadTooLarge(
                f"job {record.id} was not completed, and its transaction is rolled back: a result of {len(data)} bytes"
                f" is over max_payload ({limit}); return less, or raise max_payload"
            )
        return msgspec.structs.replace(self.success(record), result=data)


class Completed(Protocol):
    """What a block changes in the context of its job."""

    completed: bool
    in_transaction: bool

    def refuse_in_transaction(self) -> None: ...

    def unwritten(self) -> Sequence[Note]: ...


class OwnTransaction:
    """One `ctx.transaction()`: for `async with`, and in plain functions on SQLite for `with`.

    With a blocking connection, whatever would wait for the end of the block is refused meanwhile: another block, notes
    of the job, and writes of the app that the task makes.
    """

    def __init__(
        self, context: Completed, record: Record, completion: Completion, loop: asyncio.AbstractEventLoop, result: Any
    ) -> None:
        self._context = context
        self._blocking = completion.store.blocking_transactions
        self._block = completion.begin(record, result, context.unwritten)
        self._loop = loop
        self._guard_before: Guard | None = None

    async def __aenter__(self) -> Any:
        self._set_guard()
        return await self._enter()

    async def __aexit__(self, *error: object) -> None:
        self._reset_guard()
        await self._leave(*error)

    def __enter__(self) -> Any:
        if in_a_loop():
            raise ConfigError("ctx.transaction() in an async task needs `async with`")
        if not self._blocking:
            raise ConfigError(
                "ctx.transaction() needs an async task with this store, whose connection is async: declare the task"
                " with `async def`"
            )
        self._set_guard()
        return asyncio.run_coroutine_threadsafe(self._enter(), self._loop).result()

    def __exit__(self, *error: object) -> None:
        self._reset_guard()
        asyncio.run_coroutine_threadsafe(self._leave(*error), self._loop).result()

    async def _enter(self) -> Any:
        try:
            return await self._block.__aenter__()
        except BaseException:
            self._context.in_transaction = False
            raise

    async def _leave(self, *error: Any) -> None:
        try:
            await self._block.__aexit__(*error)
            self._context.completed = error[0] is None
        finally:
            self._context.in_transaction = False

    def _set_guard(self) -> None:
        self._context.refuse_in_transaction()
        self._guard_before = guard.get()
        if self._blocking:
            self._context.in_transaction = True
            guard.set(self._check)

    def _reset_guard(self) -> None:
        guard.set(self._guard_before)

    async def _check(self, jobs: Sequence[NewJob], changes: Sequence[Change]) -> Sequence[Change]:
        self._context.refuse_in_transaction()
        return changes if self._guard_before is None else await self._guard_before(jobs, changes)
