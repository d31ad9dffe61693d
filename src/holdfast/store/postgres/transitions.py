"""What was told of jobs: the moves since a cursor, exact by what each transaction could see.

A cursor names a moment: a snapshot, and a number that was the last one given before it. Moves since then are those with
a higher number, and those of the transactions that the snapshot saw under way; less what it saw. A page that is not
the last also names the moment up to which it goes, and the number it has come to.
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
"""Seconds that a new watch waits for the transactions before it, and between two looks."""


MARGIN = 60 * MICROS
"""Between when a move was emptied, by the clock of who did it, and when others could see that."""


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A point between commits."""

    number: int
    snapshot: str


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where somebody stands who watches."""

    watch: int
    at: int
    """When it was given: moves that are gone since then were not all told."""
    since: Moment
    upto: Moment | None = None
    last: int = 0
    """Of a page that is not the last: the end of all pages, and the number of its last row."""


_write = msgspec.json.encode
_read = msgspec.json.Decoder(Cursor).decode


async def transitions(link: Link, say: Callable[[str], str], since: str | None, limit: int) -> Transitions:
    """The moves since a cursor, and a watch for those to come."""
    [(watch, fresh, now, gone)] = await link.fetch(say(sql.WATCH), WATCH)
    if fresh:
        await _see_off(link)
    moment = await _moment(link, say)
    asked = None if since is None else _read(since)
    fresh_cursor = _write(Cursor(watch, now, moment)).decode()
    if asked is None:
        return Transitions([], fresh_cursor)
    if asked.watch != watch or asked.at < gone + MARGIN:
        return Transitions([], fresh_cursor, missed=True)
    upto = asked.upto or moment
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


async def _moment(link: Link, say: Callable[[str], str]) -> Moment:
    """Now. The number comes first, so that whoever has a lower one was seen by the snapshot, if only under way."""
    [(number,)] = await link.fetch(say(sql.LAST_TRANSITION))
    [(snapshot,)] = await link.fetch(sql.SNAPSHOT)
    return Moment(number, snapshot)


async def _see_off(link: Link) -> None:
    """Wait for the transactions that may have found nobody watching. One that stays open for long is not waited for."""
    [(_, last)] = await link.fetch(sql.UNDER_WAY)
    for _ in range(round(UNDER_WAY_LIMIT / UNDER_WAY_PAUSE)):
        [(first, _)] = await link.fetch(sql.UNDER_WAY)
        if first >= last:
            return
        await asyncio.sleep(UNDER_WAY_PAUSE)
