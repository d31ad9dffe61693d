"""Transactional completion: a task's own writes and the end of its job in one transaction, under its fence.

The task's block holds SQLite's write lock, so every other write to the file waits for its end. The lock file is not
held during the block, and the last statements need neither it nor the store's write thread, which may wait for both.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NoReturn

from ...core.clock import Clock
from ...core.errors import ConfigError, LeaseLost, StoreUnavailable
from ...core.operations import Note, Settlement
from . import transitions
from .files import Files
from .settle import note, settle_all
from .step import Step
from .thread import OperationThread
from .writer import Writer


def _refuse(self: Any, *_: Any) -> NoReturn:  # noqa: ARG001  # a method of both classes below
    raise ConfigError(
        "the transaction of ctx.transaction() was not ended: the end of its block commits it, and an exception in the"
        " block rolls it back; use SAVEPOINT for a part of it, and execute() instead of executescript()"
    )


class TaskCursor(sqlite3.Cursor):
    """A cursor of a task's connection. SQLite's own `executescript` would commit first."""

    executescript = _refuse


class TaskConnection(sqlite3.Connection):
    """A connection to the store's file for one task: Holdfast ends its transaction."""

    commit = rollback = executescript = __enter__ = _refuse

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or TaskCursor)

    def __del__(self) -> None:
        with suppress(sqlite3.Error):
            self.close()


class Transactions:
    """Runs the transactions of tasks one after another, each on a new connection, with a thread for what can wait."""

    def __init__(
        self, files: Files, clock: Clock, busy_timeout: float, synchronous: str, notify: Callable[[set[str]], None]
    ) -> None:
        self._turn = asyncio.Lock()
        self._notify = notify
        self._writer = writer = Writer(files, clock, busy_timeout, synchronous, TaskConnection)
        self._thread = OperationThread(
            "holdfast-sqlite-transaction",
            writer.fork_lock,
            patience=busy_timeout,
            blocked=f"ctx.transaction() could not begin or end within {busy_timeout:g} s: other transactions hold the"
            f" write lock of {files.path}; nothing was written. Make these transactions shorter, then try again",
            close=writer.close,
            after=self._close_idle,
        )
        self._opened = self._closed = False

    @asynccontextmanager
    async def begin(
        self, end: Callable[[], Settlement], notes: Callable[[], Sequence[Note]]
    ) -> AsyncGenerator[sqlite3.Connection, None]:
        """A connection inside a transaction. At the end of the block, it commits with `notes()` and last `end()`.

        Raises LeaseLost, and rolls back, if the claim has already ended.
        """
        async with self._turn:
            self._check()
            if not self._opened:
                await self._thread.run(self._writer.open)
                self._opened = True
            try:
                yield await self._thread.run(self._writer.begin)
                self._check()
                _, notified = await self._thread.run(partial(self._writer.finish, partial(_settle, notes(), end())))
            finally:
                if self._closed:
                    self._writer.give_up()
                else:
                    given_up = self._thread.run(self._writer.give_up)
                    given_up.add_done_callback(lambda done: done.cancelled() or done.exception())  # no caller waits
        self._notify(notified)

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable(
                f"the store {self._writer.path} was closed before the end of ctx.transaction(); nothing was written,"
                " and the job runs again"
            )

    def _close_idle(self) -> None:
        """After an operation: settings that a task has made end with its connection."""
        if not self._writer.lent:
            with suppress(sqlite3.Error):
                self._writer.close_connections()

    async def close(self) -> None:
        self._closed = True
        await self._thread.run(self._writer.close)
        self._thread.end()

    def end(self) -> None:
        self._closed = True
        self._thread.end()

    def forget(self) -> None:
        """In a forked child: never close the parent's connection."""
        self._writer.forget()


def _settle(notes: Sequence[Note], end: Settlement, step: Step) -> None:
    if not step.connection.in_transaction:
        raise ConfigError(
            f"job {end.id} was not completed: its block has ended the transaction of ctx.transaction() with SQL; leave"
            " COMMIT and ROLLBACK to Holdfast"
        )
    for new in notes:
        note(step, new)
    if not settle_all(step, [end])[0]:
        raise LeaseLost(end.id, end.fence)
    transitions.write(step)
