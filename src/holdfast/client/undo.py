"""Undo of an operator action by its audit entry: only what is still as the action left it is changed."""

from __future__ import annotations

import msgspec

from ..core import undo as rules
from ..core.job import Record
from ..core.operations import Change
from ..core.undo import Version
from ..core.writes import Writes
from ..observe.actors import note_changed
from ..observe.events import Events
from ..store.protocol import records_of
from .audit_log import Entry
from .bulk_change import Tally, commit_changes
from .pauses import KIND as TASK_PAUSE
from .pauses import checked_pause
from .session import Session
from .unique import rivals


class Undoable(msgspec.Struct, frozen=True):
    """What an undo can change, by what the entry says."""

    count: int
    """Jobs; 1 for a pause."""
    excluded: dict[str, int]
    """Jobs that it cannot change, by reason: `running`, `flow`, `result`, `woken`, `unlisted`; see `Undone`."""


class Undone(msgspec.Struct, frozen=True):
    """What an undo has changed."""

    changed: int
    """Jobs; 1 for a pause."""
    skipped: int
    reasons: dict[str, int]
    """How many were skipped and why: `running` (asked to stop), `flow` (a job of a flow), `result` (it had succeeded,
    and the retry dropped its result), `woken` (it slept or waited for a signal), `unlisted` (the entry has 1,000 ids),
    `started` or `changed` since, `due` (by now anyway), `not_found`, `key` (another unfinished job has its key),
    `refused` (this caller may not), `resumed` (the pause is no longer in force)."""
    why: list[str]
    """The same in words."""


def _action(entry: Entry) -> str | None:
    """The action of an entry that can be undone: `pause`, `cancel` or `retry`."""
    name = entry.target.get("action") if entry.action == "bulk.change" else entry.action
    name = "retry" if name == "bulk.retry_dead" else name
    return name if name in ("pause", "cancel", "retry") else None


def undoable(entry: Entry) -> Undoable | None:
    """What can be undone of an entry; None: nothing ever."""
    action = _action(entry)
    if action is None or entry.outcome is None:
        return None
    if action == "pause":
        return None if entry.left is None or entry.before.get("paused") else Undoable(1, {})
    listed = _jobs(entry)
    if not listed:
        return None
    found: dict[str, int] = {}
    for _, state, version in listed:
        if (reason := rules.excluded(action, state, version)) is not None:
            found[reason] = found.get(reason, 0) + 1
    if (more := (entry.count or 0) - len(listed)) > 0:
        found["unlisted"] = more
    return Undoable(max(entry.count or 0, len(listed)) - sum(found.values()), found)


def _jobs(entry: Entry) -> list[tuple[str, str, Version | None]]:
    """The listed jobs: id, state and version before the action. Without versions: of a log that had none."""
    return [
        (id, state, version)
        for state, ids in entry.jobs.items()
        for id, version in zip(ids, entry.versions.get(state, ()), strict=False)
    ]


class Undo:
    """Undoes actions of one store."""

    def __init__(self, session: Session, events: Events) -> None:
        self._session = session
        self._events = events
        self._tally = Tally("undone")

    async def run(self, entry: Entry) -> Undone:
        """Undo an action that is `undoable`."""
        if _action(entry) == "pause":
            await self._pause(entry)
        else:
            await self._change(entry)
        found = self._tally
        reasons = dict(found.reasons)
        return Undone(found.changed, sum(reasons.values()), reasons, explained(reasons))

    async def _pause(self, entry: Entry) -> None:
        """Resume what a pause has paused, if the record is still the one that it wrote."""
        session, target, left = self._session, entry.target, (entry.left or "").encode()
        done = False
        if (task := target.get("task")) is None:
            queue = str(target.get("queue"))
            kept = (await records_of(session.store, "pause")).get(queue)
            if kept is not None and kept.value == left:
                done = await session.store.put_record("pause", queue, None, kept.version)
        else:
            pause = checked_pause(task, target.get("where"))
            kept = (await records_of(session.store, TASK_PAUSE)).get(pause.name)
            if kept is not None and kept.value == left:
                done = await session.task_pauses.lift(pause, kept.version)
        if done:
            self._tally.changed = 1
        else:
            self._tally.skip("resumed")

    async def _change(self, entry: Entry) -> None:
        session, tally, action = self._session, self._tally, _action(entry) or ""
        for reason, number in (known.excluded if (known := undoable(entry)) else {}).items():
            tally.skip(reason, number=number)
        wanted = {id: (state, version) for id, state, version in _jobs(entry) if version is not None}
        wanted = {id: one for id, one in wanted.items() if rules.excluded(action, *one) is None}
        records = [record for record in await session.store.get(list(wanted)) if record is not None]
        if gone := len(wanted) - len(records):
            tally.skip("not_found", number=gone)
        now, taken = await session.store.now(), await rivals(session, records) if action == "cancel" else {}
        changes: list[tuple[Record, Change]] = []
        for record in records:
            state, version = wanted[record.id]
            if record.id in taken:
                decided: Change | str = "key"
            elif action == "cancel":
                decided = rules.cancel(record, state, version)
            else:
                decided = rules.retry(record, state, version, session.rules, ended_at=entry.ended_at or 0, now=now)
            if isinstance(decided, str):
                tally.skip(decided)
            else:
                changes.append((record, decided))
        with Writes(f"the undo of {len(changes)} jobs", "undo the entry again") as writes:
            await self._write(action, changes, writes)

    async def _write(self, action: str, changes: list[tuple[Record, Change]], writes: Writes) -> None:
        if not changes:
            return
        for (record, change), done in zip(
            changes, await commit_changes(self._session, changes, self._tally), strict=True
        ):
            if done:
                self._tally.changed += 1
                writes.made += 1
                note_changed(record)
                if action == "cancel":
                    self._events.changed(record, change)
            elif done is not None:
                self._tally.skip("changed")


def explained(reasons: dict[str, int]) -> list[str]:
    """Counts of skipped jobs in words."""
    return [
        f"{number:,}: {rules.REASONS[reason]}" for reason, number in sorted(reasons.items(), key=lambda one: -one[1])
    ]
