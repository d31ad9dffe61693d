"""What the operations of one transaction share: the connection, the time, and what is to be told of it."""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import Any

from ...core.clock import Clock
from ...core.operations import MinuteStats
from . import sql


class Mismatch(Exception):
    """A bulk statement did not touch every row that it was to touch: do the batch again, one by one."""


class Step:
    """One atomic step on one connection. The clocks are read once, so a batch happens at one moment."""

    __slots__ = ("boot", "boot_id", "bulk", "connection", "ended", "kept", "moved", "notified", "now", "watched")

    def __init__(self, connection: sqlite3.Connection, clock: Clock, *, bulk: bool = True) -> None:
        self.connection = connection
        self.now = clock.now()
        self.boot = clock.boot()
        self.boot_id = clock.boot_id()
        self.bulk = bulk
        self.notified: set[str] = set()
        """Topics to ring after the commit."""
        self.moved: list[tuple[str, str]] | None = None
        """The (id, state) of jobs that came to another state; None until somebody has asked whether it is watched."""
        self.watched = False
        self.ended: dict[tuple[str, str], MinuteStats] = {}
        """How claims ended, by (queue, outcome)."""
        self.kept: dict[tuple[str, str], int] = {}
        """Ended jobs that came (or went), by (queue, state)."""

    def write_rows(self, statements: dict[int, str], shared: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> int:
        """Run a statement that takes MANY rows as often as it fits, and one by one for the rest; the rows written."""
        many, at, written = statements[sql.MANY], 0, 0
        while at + sql.MANY <= len(rows):
            values = (*shared, *chain.from_iterable(rows[at : at + sql.MANY]))
            written += self.connection.execute(many, values).rowcount
            at += sql.MANY
        if at < len(rows):
            written += self.connection.executemany(statements[1], [(*shared, *row) for row in rows[at:]]).rowcount
        return written

    def one(self, statement: str, *values: Any) -> Any:
        """The first row that a SELECT finds, or None."""
        try:
            return self.connection.execute(statement, values).fetchone()
        except UnicodeEncodeError:
            return None  # text that cannot be stored is not there

    def value(self, statement: str, *values: Any) -> Any:
        """The first column of the first row, or None."""
        row = self.one(statement, *values)
        return None if row is None else row[0]
