"""The audit log as a service: pages of operator actions, and the undo of one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import msgspec

from ..core.clock import MICROS, moment
from ..core.errors import InvalidJob
from ..core.validation import checked_limit, checked_text
from ..observe.actors import ACTOR_LIMIT, Actor, acting, note_target
from ..store.protocol import records_of
from .audit_log import INTERRUPTED_AFTER, Entry, kind_of, pages, read
from .audited import audited
from .runtime import Runtime, on_app_loop
from .search import TEXT_LIMIT
from .session import Session
from .undo import Undo, Undoable, Undone, undoable

LOOKED = 10_000
"""Entries that one page reads, at most (up to one read more)."""


class AuditEntry(msgspec.Struct, frozen=True):
    """An operator action."""

    id: str
    at: datetime
    """When it began, by the store's clock."""
    action: str
    """Such as `cancel`, `bulk.purge`, `schedule.put`."""
    actor: str
    """The label of a token, a user and host, or a process."""
    surface: str
    """`python`, `cli`, `http`, `dashboard` or `django`."""
    target: dict[str, Any]
    """The arguments: an id, a queue, a filter; without the arguments of jobs and without secrets."""
    status: str
    """`done`; `refused` (nothing was done); `failed`; `unknown` (the store did not say whether it was written);
    `running`; or `interrupted`: no outcome was recorded, so it may have happened, in part or as a whole."""
    ended_at: datetime | None
    count: int | None
    """Jobs that were changed, for actions on jobs."""
    error: str | None
    before: dict[str, Any]
    """What it replaced, such as the state and due time of a job, or the value of a setting."""
    jobs: dict[str, list[str]]
    """Ids of the changed jobs by their state before; at most 1,000, and `count` has them all."""
    undo: Undoable | None
    """What `undo` can change; None: the action cannot be undone, or has not ended."""


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, newest first."""

    entries: list[AuditEntry]
    cursor: str | None
    """Continues with older entries; None: there are no more."""


class Audit:
    """The audit log of an app's store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def acting_as(self, name: str) -> AbstractContextManager[None]:
        """Within the block, the audit log names this actor, such as a user of your program, instead of the process."""
        return acting(Actor(checked_text(name, "an actor", ACTOR_LIMIT), "python"))

    @on_app_loop
    async def list(
        self,
        session: Session,
        *,
        action: str | None = None,
        actor: str | None = None,
        about: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> AuditPage:
        """A page of operator actions, newest first.

        `action`: its name, or the part before the dot; `actor`: contained in the actor; `about`: contained in the
        target or the changed ids, such as the id of a job. A page may be shorter than `limit` and still have a cursor.
        """
        for name, text in (("action", action), ("actor", actor), ("about", about)):
            if text is not None:
                checked_text(text, name, TEXT_LIMIT)
        number, now, looked = checked_limit(limit), await session.store.now(), 0
        before = None if cursor is None else _checked_id(cursor, "cursor")
        found: list[AuditEntry] = []
        last = before
        async for page in pages(session.store, before):
            for name, kept in page:
                looked, last = looked + 1, name
                entry = read(kept)
                if entry is not None and _matches(entry, action, actor, about):
                    found.append(_shown(name, entry, now))
                    if len(found) == number:
                        return AuditPage(found, last)
            if looked >= LOOKED:
                return AuditPage(found, last)
        return AuditPage(found, None)

    @audited("audit.undo")
    @on_app_loop
    async def undo(self, session: Session, entry: str) -> Undone:
        """Undo a pause, or a cancel or retry of jobs that have not started since, by the id of its entry.

        Only what is still as the action left it is changed; the rest is counted by reason. Repeating it is safe.
        """
        second = int(_checked_id(entry, "entry").partition("-")[0]) // MICROS
        kept = (await records_of(session.store, kind_of(second))).get(entry)
        found = None if kept is None else read(kept)
        if found is None:
            raise InvalidJob(
                f"there is no entry {entry!r} in the audit log: it was removed, or the id is wrong;"
                " `holdfast audit` shows the ids"
            )
        note_target(action=found.action)
        if undoable(found) is None:
            raise InvalidJob(
                f"entry {entry!r} ({found.action}) cannot be undone: only cancel, retry and pause can, once they have"
                " ended, and a pause only if it changed something"
            )
        return await Undo(session, self._runtime.events).run(found)


def _checked_id(id: str, what: str) -> str:
    at, dash, rest = checked_text(id, what).partition("-")
    if not (dash and len(at) == 16 and at.isascii() and at.isdecimal() and len(rest) == 8):
        source = "the cursor of an earlier page" if what == "cursor" else "the id of an entry"
        raise InvalidJob(f"invalid {what} {id!r:.100}: use {source} of the audit log (`holdfast audit`)")
    return id


def _matches(entry: Entry, action: str | None, actor: str | None, about: str | None) -> bool:
    named = action is None or action in (entry.action, entry.action.partition(".")[0])
    if not named or (actor is not None and actor not in entry.actor):
        return False
    return about is None or about in msgspec.json.encode([entry.target, entry.jobs]).decode()


def _shown(name: str, entry: Entry, now: int) -> AuditEntry:
    status = entry.outcome
    if status is None:
        status = "interrupted" if now - entry.seen_at > INTERRUPTED_AFTER * MICROS else "running"
    ended = None if entry.ended_at is None else moment(entry.ended_at)
    at = moment(int(name.partition("-")[0]))
    about = (entry.action, entry.actor, entry.surface, entry.target)
    outcome = (status, ended, entry.count, entry.error, entry.before, entry.jobs)
    return AuditEntry(name, at, *about, *outcome, undoable(entry))
