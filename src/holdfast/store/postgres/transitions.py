"""Recorded transitions since a cursor, exact by transaction snapshots.

A cursor has a snapshot, and the last number that was assigned before it. Transitions since then have a higher number,
or are of transactions that were in progress in the snapshot; the snapshot must not see them. The cursor of a page that
is not the last also has the snapshot up to which all pages go, and the number of its last row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from ...core.clock import MICROS
from ...core.operations import Transition, Transitions
from ..protocol import WATCH
from . import sql
from .pool import Link

UNDER_WAY_LIMIT, UNDER_WAY_PAUSE = 2.0, 0.02
"""Seconds that a new watch waits for earlier transactions, and between two checks."""
MARGIN = 60 * MICROS
"""Microseconds, at most, from the time at which transitions are removed until other transactions see that."""


class CommitPoint(msgspec.Struct, frozen=True, array_like=True):
    """A point between commits."""

    number: int
    snapshot: str


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The position of a reader."""

    watch: int
    at: int
    """When it was issued: if transitions were removed since then, some may be missing."""
    since: CommitPoint
    upto: CommitPoint | None = None
    last: int = 0
    """Of a page that is not the last: the end of all pages, and the number of its last row."""


_write = msgspec.json.encode
_read = msgspec.json.Decoder(Cursor).decode


async def transitions(link: Link, say: Callable[[str], str], since: str | None, limit: int) -> Transitions:
    """The transitions since a cursor; transitions of the next WATCH seconds are recorded."""
    [(watch, fresh, now, gone)] = await link.fetch(say(sql.WATCH), WATCH)
    if fresh:
        await _wait_for_earlier(link)
    point = await _commit_point(link, say)
    asked = None if since is None else _read(since)
    fresh_cursor = _write(Cursor(watch, now, point)).decode()
    if asked is None:
        return Transitions([], fresh_cursor)
    if asked.watch != watch or asked.at < gone + MARGIN:
        return Transitions([], fresh_cursor, missed=True)
    upto = asked.upto or point
    rows = await link.fetch(
        say(sql.TRANSITIONS), asked.since.number, asked.since.snapshot, upto.snapshot, asked.last, max(1, limit) + 1
    )
    if any(emptied for *_, emptied in rows):
        return Transitions([], fresh_cursor, missed=True)
    found, last = list[Transition](), asked.last
    for number, at, ids, states, _ in rows:
        if len(found) >= limit:
            return Transitions(found, _write(Cursor(watch, now, asked.since, upto, last)).decode())
        found += [Transition(id, state, at) for id, state in zip(ids, states, strict=True)]
        last = number
    return Transitions(found, _write(Cursor(watch, now, upto)).decode())


async def _commit_point(link: Link, say: Callable[[str], str]) -> CommitPoint:
    """The present point. The number is read first, so that the snapshot knows every transaction with a lower one."""
    [(number,)] = await link.fetch(say(sql.LAST_TRANSITION))
    [(snapshot,)] = await link.fetch(sql.SNAPSHOT)
    return CommitPoint(number, snapshot)


async def _wait_for_earlier(link: Link) -> None:
    """Wait for transactions that may not record their transitions; at most UNDER_WAY_LIMIT seconds."""
    [(_, last)] = await link.fetch(sql.UNDER_WAY)
    for _ in range(round(UNDER_WAY_LIMIT / UNDER_WAY_PAUSE)):
        [(first, _)] = await link.fetch(sql.UNDER_WAY)
        if first >= last:
            return
        await asyncio.sleep(UNDER_WAY_PAUSE)
