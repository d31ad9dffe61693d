"""Searches jobs by criteria that stores do not support: text, error and time, over a bounded number of jobs."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

import msgspec

from ..core.clock import micros
from ..core.errors import HoldfastError, InvalidJob
from ..core.internal import is_flow
from ..core.job import Record
from ..core.operations import Found, Where
from ..core.validation import checked_filter
from ..store.protocol import Store
from ..views import Job, states_named
from .error_groups import fault

WINDOW = 10_000
"""Jobs that one search reads; its cursor continues where it ended."""
CHUNK = 250
"""Jobs that are read at once: each may have a megabyte."""
ARGUMENT = re.compile(r"args\.(\w+(?:\.\w+)*):(.*)", re.DOTALL)
"""A search text that names an argument and its value: `args.customer_id:42`."""
TEXT_LIMIT = 200
"""Characters of a search text."""


class Scope(msgspec.Struct, frozen=True):
    """Queues and tasks by name; `*` matches any characters. An empty list means all."""

    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def covers(self, queue: str, task: str) -> bool:
        return self.covers_queue(queue) and self.covers_task(task)

    def covers_queue(self, queue: str) -> bool:
        return _named(queue, self.queues)

    def covers_task(self, task: str) -> bool:
        return _named(task, self.tasks)

    def contains(self, other: Scope) -> bool:
        """Whether another scope covers nothing that this one does not; a pattern must be inside one of this scope."""
        return _inside(other.queues, self.queues) and _inside(other.tasks, self.tasks)

    def includes(self, record: Record) -> bool:
        """Whether a stored job is covered. A flow never is: its jobs may be of any queue and task."""
        return self.covers(record.queue, record.task) and not is_flow(record)

    @property
    def only_queue(self) -> str | None:
        """The queue's name, if only one is covered."""
        return _only(self.queues)

    @property
    def only_task(self) -> str | None:
        """The task's name, if only one is covered."""
        return _only(self.tasks)

    def __str__(self) -> str:
        parts = (("queue", self.queues), ("task", self.tasks))
        return " and ".join(f"{what} {' or '.join(names)}" for what, names in parts if names)


def _named(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(_matches(name, pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern matches a name, in one pass: a regular expression would try every way to place its parts."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *parts, last = rest
    at, end = len(first), len(name) - len(last)
    if at > end or (name[:at], name[end:]) != (first, last):
        return False
    for part in parts:
        if (found := name.find(part, at, end)) < 0:
            return False
        at = found + len(part)
    return True


def _inside(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    # A pattern that matches the text of another one, asterisks included, matches all that the other matches.
    return not patterns or (bool(names) and all(_named(name, patterns) for name in names))


def _only(patterns: tuple[str, ...]) -> str | None:
    return patterns[0] if len(patterns) == 1 and "*" not in patterns[0] else None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of jobs; every given part must match."""

    state: str | Sequence[str] | None = None
    queue: str | None = None
    task: str | None = None
    tag: str | None = None
    text: str | None = None
    """A part of id, key, task, error or arguments, case-insensitive; or `args.NAME:VALUE`: an argument's value."""
    error: str | None = None
    """The fingerprint of its last error; see `app.errors`."""
    since: datetime | None = None
    """Enqueued at this time or later."""
    until: datetime | None = None
    """Enqueued at this time or before."""
    scope: Scope | None = None
    """Restricted to these queues and tasks."""


class Search(msgspec.Struct, frozen=True):
    """A page of jobs, newest first, and how far the search got."""

    jobs: list[Job]
    cursor: str | None
    """Continues from here; None: there are no more."""
    looked: int
    """Jobs that were read."""
    back_to: datetime | None
    """When the last of the read jobs was enqueued."""
    exact: int = 0
    """How many of the jobs, the first ones, the text names: by id, key or worker."""


class Sought:
    """A prepared filter: the part for the store, and the part that is checked here."""

    def __init__(self, given: Filter) -> None:
        queue, task = checked_filter(given.queue, "queue"), checked_filter(given.task, "task")
        self._scope = given.scope
        if given.scope is not None:
            queue, task = queue or given.scope.only_queue, task or given.scope.only_task
        self.where = Where(states_named(given.state), queue, task, checked_filter(given.tag, "tag"))
        self.text = given.text
        self._text = None if not given.text else _checked_text(given.text)
        self._argument = ARGUMENT.fullmatch((given.text or "").strip())
        self._in_json = None if self._text is None else msgspec.json.encode(self._text).decode()[1:-1]
        self._error = given.error
        self.since = None if given.since is None else checked_time(given.since, "since")
        self._until = None if given.until is None else checked_time(given.until, "until")
        self.counted = not any((given.task, given.tag, self._text, self._error, given.since, given.until, given.scope))
        """Only by state and queue, which a store can count."""
        self.by_store = not any((self._text, self._error, given.since, given.until, given.scope))
        """The store checks the whole filter."""
        named = (given.queue, given.task, given.tag, self._text, given.error, given.since)
        self.everything = not self.where.states and all(part is None for part in named)
        """No job that exists by `until` is excluded."""

    def matches(self, record: Record) -> bool:
        """Whether a job that the store has found matches the rest of the filter."""
        return self._passes(record) and (self._text is None or self._has_text(record))

    def covers(self, record: Record) -> bool:
        """Whether a job matches all parts of the filter except the text."""
        where = self.where
        return (
            (not where.states or record.state in where.states)
            and where.queue in (None, record.queue)
            and where.task in (None, record.task)
            and (where.tag is None or where.tag in record.tags)
            and self._passes(record)
        )

    def _passes(self, record: Record) -> bool:
        if self._scope is not None and not self._scope.includes(record):
            return False
        if self.since is not None and record.created_at < self.since:
            return False
        if self._until is not None and record.created_at > self._until:
            return False
        if self._error is not None:
            found = fault(record)
            if found is None or found.fingerprint != self._error:
                return False
        return True

    def _has_text(self, record: Record) -> bool:
        assert self._text is not None
        assert self._in_json is not None
        if self._argument is not None:
            return record.codec == "json" and _has_argument(record.payload, *self._argument.groups())
        words = (record.id, record.key, record.task, record.error)
        if any(word is not None and self._text in word.casefold() for word in words):
            return True
        return record.codec == "json" and self._in_json in record.payload.decode(errors="replace").casefold()


def _has_argument(payload: bytes, path: str, wanted: str) -> bool:
    """Whether an argument, or a value inside it (`order.id`), is this text, number or other JSON value."""
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return False
        value = cast("dict[str, Any]", value)[name]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.casefold() == wanted.strip().casefold()


class SearchResult(msgspec.Struct):
    """The result of one search."""

    records: list[Record]
    cursor: str | None
    looked: int
    back_to: int | None


async def search(store: Store, sought: Sought, cursor: str | None, limit: int, window: int = WINDOW) -> SearchResult:
    """The next matching jobs: at most `limit`, among at most `window`."""
    found: list[Record] = []
    looked, back_to = 0, None
    while True:
        size = limit if sought.by_store else min(CHUNK, window - looked)
        page = await store.find(sought.where, cursor, size)
        for number, record in enumerate(page.records, start=1):
            if not sought.matches(record):
                continue
            found.append(record)
            if len(found) == limit and number < len(page.records):
                # Only the store makes cursors: read a page that ends here.
                cursor = (await find_page(store, sought.where, cursor, number)).cursor
                return SearchResult(found, cursor, looked + number, record.created_at)
        looked += len(page.records) if page.looked is None else page.looked
        if page.records:
            back_to = page.records[-1].created_at
        cursor = page.cursor
        if cursor is not None and sought.since is not None and back_to is not None and back_to < sought.since:
            cursor = None
        if cursor is None or len(found) >= limit or looked >= window:
            return SearchResult(found, cursor, looked, back_to)


async def find_page(store: Store, where: Where, cursor: str | None, limit: int) -> Found:
    """A page as `Store.find` gives it, but full unless there are no more jobs."""
    page = await store.find(where, cursor, limit)
    while page.looked is not None and len(page.records) < limit:
        more = await store.find(where, page.cursor, limit - len(page.records))
        page = Found([*page.records, *more.records], more.cursor, more.looked)
    return page


async def named(store: Store, sought: Sought) -> list[Record]:
    """The jobs that the text names exactly: by id, key of an unfinished job, or id of the worker that runs them."""
    text = (sought.text or "").strip()
    if not text or not text.isprintable():
        return []
    [owner] = await store.key_owners([text])
    held = [id for one in await store.holders() if one.holder.id == text for id in one.jobs]
    ids: list[str] = [text, *held] if owner is None else [text, owner, *held]
    found = await store.get(list(dict.fromkeys(ids)))
    return [record for record in found if record is not None and sought.covers(record)]


def _checked_text(text: str) -> str:
    if len(text) > TEXT_LIMIT:
        raise InvalidJob(f"the search text must have at most {TEXT_LIMIT} characters, not {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidJob("the search text must not contain lone surrogates; correct its encoding") from None
    return text.casefold()


def checked_time(at: datetime, what: str) -> int:
    if at.tzinfo is None or at.utcoffset() is None:
        raise InvalidJob(f"{what} needs an aware datetime, such as datetime.now(UTC), not {at!r}")
    return micros(at)


@contextmanager
def reading_from(cursor: str | None, source: str = "page") -> Generator[None]:
    """Around a read: InvalidJob if the store cannot decode the cursor."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        if cursor is None or isinstance(error, HoldfastError):
            raise
        raise InvalidJob(f"invalid cursor {cursor!r:.100}: use the cursor of an earlier {source}") from None


def where_of(
    states: tuple[str, ...], queue: str | None, task: str | None, tag: str | None, *, finished_before: int | None = None
) -> Where:
    """The store's filter, from names given by a caller."""
    checked = [checked_filter(value, what) for value, what in ((queue, "queue"), (task, "task"), (tag, "tag"))]
    return Where(states, *checked, finished_before=finished_before)
