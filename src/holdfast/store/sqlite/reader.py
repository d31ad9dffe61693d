"""The connection for reads, on its own thread, opened at the first read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from ...core.clock import Clock
from . import connection as connections
from . import sql, trouble
from .files import Files
from .fork import ForkLock
from .step import Step
from .thread import OperationThread, Ticket

T = TypeVar("T")


class Reader:
    """Runs each read in one snapshot; in WAL mode reads and writes do not wait for each other."""

    def __init__(self, files: Files, clock: Clock, busy_timeout: float) -> None:
        self._files = files
        self._path = files.path
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._thread: OperationThread | None = None
        self._connection: sqlite3.Connection | None = None
        self._fork_lock = ForkLock(self._close)

    async def read(self, work: Callable[[Step], T]) -> T:
        if self._thread is None:
            patience = self._busy_timeout
            blocked = f"a read of {self._path} could not begin within {patience:g} s (another read runs); try again"
            self._thread = OperationThread(
                "holdfast-sqlite-read", self._fork_lock, patience=patience, blocked=blocked, close=self._close
            )
        return await self._thread.run(lambda ticket: self._work(work, ticket))

    def _work(self, work: Callable[[Step], T], ticket: Ticket[T]) -> T:
        ticket.take()
        self._files.check()
        try:
            if self._connection is None:
                self._connection = connections.connect_reader(self._path, self._busy_timeout)
            self._connection.execute(sql.BEGIN_READ)
            try:
                return work(Step(self._connection, self._clock))
            finally:
                connections.roll_back(self._connection)
        except sqlite3.Error as error:
            if self._connection is not None and connections.read_leniently(self._connection, error):
                return self._work(work, ticket)
            if meaning := trouble.translate(error, self._path):
                raise meaning from error
            raise

    async def close(self) -> None:
        if self._thread is not None:
            await self._thread.run(self._close)
            self._thread.end()
            self._thread = None

    def _close(self, _: object = None) -> None:
        self._files.close(self._connection)
        self._connection = None

    def end(self) -> None:
        """Make the thread close the connection and end, without waiting for it."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def forget(self) -> None:
        """In a forked child: never close the parent's connection."""
        connections.forget(self._connection, self._thread)
        self._connection = self._thread = None
