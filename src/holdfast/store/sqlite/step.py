"""What the operations of one transaction share: the connection, the time, and the effects to record and notify."""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import Any

from ...core.clock import Clock
from ..minute_sums import Sums


class Mismatch(Exception):
    """A bulk statement did not change every expected row: the batch is repeated, one operation at a time."""


class Step:
    """One atomic step on one connection. The clocks are read once, so a whole batch has one time."""

    __slots__ = ("boot", "boot_id", "bulk", "changed", "connection", "ended", "kept", "notified", "now", "watched")

    def __init__(self, connection: sqlite3.Connection, clock: Clock, *, bulk: bool = True) -> None:
        self.connection = connection
        self.now = clock.now()
        self.boot = clock.boot()
        self.boot_id = clock.boot_id()
        self.bulk = bulk
        self.notified: set[str] = set()
        """Topics to notify after the commit."""
        self.changed: list[tuple[str, str]] | None = None
        """The (id, state) of jobs that changed state; None until `watched` has been read."""
        self.watched = False
        self.ended: dict[tuple[str, str, str], Sums] = {}
        """Statistics of ended claims, by (queue, task, outcome)."""
        self.kept: dict[tuple[str, str], int] = {}
        """Ended jobs added (or, below zero, removed), by (queue, state)."""

    def write_rows(self, statements: dict[int, str], shared: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> int:
        """Run the statement for the most rows as often as it fits, then the next; else one by one. The rows written."""
        at = written = 0
        for count, statement in reversed(statements.items()):
            while 1 < count <= len(rows) - at:
                values = (*shared, *chain.from_iterable(rows[at : at + count]))
                written += self.connection.execute(statement, values).rowcount
                at += count
        if at < len(rows):
            written += self.connection.executemany(statements[1], [(*shared, *row) for row in rows[at:]]).rowcount
        return written

    def one(self, statement: str, *values: Any) -> Any:
        """The first row that a SELECT finds, or None."""
        try:
            return self.connection.execute(statement, values).fetchone()
        except UnicodeEncodeError:
            return None  # text that cannot be encoded was never stored

    def value(self, statement: str, *values: Any) -> Any:
        """The first column of the first row, or None."""
        row = self.one(statement, *values)
        return None if row is None else row[0]
