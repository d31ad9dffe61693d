"""CHANGE: operators' changes, each made only if state and fence still are as the change expects.

Rows are locked, changed by the rules that every store shares, and written back, inside the caller's transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from ...core.job import TERMINAL, Record, State
from ...core.operations import HANDLED, Change
from ..reference import apply
from . import sql
from .pool import Link
from .rows import record, row


class Changes:
    """One batch of changes on one connection."""

    def __init__(self, link: Link, say: Callable[[str], str]) -> None:
        self._link = link
        self._say = say
        self._jobs: dict[str, Record] = {}
        self._was_over: dict[str, bool] = {}
        self._touched: dict[str, Record] = {}
        self._removed: list[int] = []
        self._keys: dict[tuple[str, str], int | None] = {}
        self._forgotten: list[tuple[str, str]] = []
        self._fingerprints: dict[tuple[str, str], str] = {}
        self._deferred = Counter[str]()
        """Jobs that wait for a limit key, by its name."""
        self._left: dict[str, bool] = {}
        """Limit keys of jobs that are no longer ready or running, and whether they had deferred jobs then."""
        self._ended_ids: list[str] = []
        self._handled: list[str] = []
        self._transitions: list[tuple[str, str]] = []
        self.queues: set[str] = set()
        self.ended: set[str] = set()
        self.holders: set[str] = set()
        """Holders of running jobs whose cancellation is requested."""

    async def make(self, changes: Sequence[Change]) -> list[bool]:
        """Make each change; False if its job no longer is as the change expects."""
        ids = sorted({change.id for change in changes})
        # First the unfinished: a job that is just being settled is found among the ended afterwards.
        for statement, over in ((sql.LOCK_LIVING, False), (sql.LOCK_ENDED, True)):
            for found in await self._link.fetch(self._say(statement), ids):
                kept = record(found)
                self._jobs[kept.id], self._was_over[kept.id] = kept, over
        limit_keys = {kept.limit_key.name for kept in self._jobs.values() if kept.limit_key is not None}
        if limit_keys:
            found = await self._link.fetch(self._say(sql.DEFERRED), sorted(limit_keys), len(changes) + 1)
            self._deferred.update(dict[str, int](found))
        now = (await self._link.fetch(self._say(sql.NOW)))[0][0]
        answers = [self._change(change, now) for change in changes]
        await self._write()
        return answers

    def _change(self, change: Change, now: int) -> bool:
        kept = self._jobs.get(change.id)
        if kept is None or not change.matches(kept):
            return False
        if change.patch is not None and change.patch.handled:
            self._handled.append(kept.id)
        if change.patch == HANDLED:
            return True
        was_over, was_ready = kept.state in TERMINAL, kept.state in (State.QUEUED, State.RUNNING)
        if kept.waiting_for is not None and kept.waiting_for.kind == "limit":
            self._deferred[kept.waiting_for.name] -= 1
        if change.patch is None:
            if not was_over and kept.key is not None:
                self._keys.pop((kept.key, kept.id), None)
                self._forgotten.append((kept.key, kept.id))
            self._remove(kept)
            self._capacity_freed(kept)
            self._transitions.append((kept.id, "deleted"))
            return True
        apply.patch(kept, change.patch, now)
        if kept.waiting_for is not None and kept.waiting_for.kind == "limit":
            self._deferred[kept.waiting_for.name] += 1
        if change.patch.payload is not UNSET and change.patch.fingerprint and kept.key is not None:
            self._fingerprints[kept.key, kept.id] = change.patch.fingerprint
        self._touched[kept.id] = kept
        over = kept.state in TERMINAL
        if over:
            self.ended.add(kept.id)
        elif kept.holder is not None and apply.asks_to_stop(kept, change.patch):
            self.holders.add(kept.holder)
        else:
            self.queues.add(kept.queue)
        if not (over and was_over):  # else it had ended before: the expiry of its key stays
            self._key(kept, apply.after(now, change.patch.key_keep) if over else None)
        if not (over and was_over) and apply.removable(kept, now):
            self._remove(kept)
        if change.patch.state is not UNSET:
            self._transitions.append((kept.id, str(kept.state)))
            if was_ready:
                self._capacity_freed(kept)
        if change.patch.record_end and over:
            self._ended_ids.append(kept.id)
        return True

    def _capacity_freed(self, kept: Record) -> None:
        if kept.limit_key is not None:
            deferred = self._deferred[kept.limit_key.name] > 0
            self._left[kept.limit_key.name] = deferred or self._left.get(kept.limit_key.name, False)
            if deferred:
                self.queues.add(kept.queue)

    def _key(self, kept: Record, expires_at: int | None) -> None:
        if kept.key is not None:
            self._keys[kept.key, kept.id] = expires_at

    def _remove(self, kept: Record) -> None:
        self._removed.append(kept.seq)
        self._touched.pop(kept.id, None)
        del self._jobs[kept.id]

    async def _write(self) -> None:
        if self._removed:
            await self._link.fetch(self._say(sql.REMOVE), self._removed)
        transitions: dict[str, list[Any]] = {}
        for kept in sorted(self._touched.values(), key=lambda one: one.seq):
            over, was_over = kept.state in TERMINAL, self._was_over[kept.id]
            if over:
                statement = sql.SAVE_ENDED if was_over else sql.END
            else:
                statement = sql.REVIVE if was_over else sql.SAVE_LIVING
            transitions.setdefault(statement, []).append(row(kept))
        for statement, rows in transitions.items():
            await self._link.raw.executemany(self._say(statement), rows)
        if self._keys:
            keys = sorted(self._keys)
            times = [self._keys[key] for key in keys]
            await self._link.fetch(self._say(sql.SET_KEYS), *zip(*keys, strict=True), times)
        if self._forgotten:
            await self._link.fetch(self._say(sql.FORGET_KEYS), *zip(*self._forgotten, strict=True))
        if self._fingerprints:
            keys = sorted(self._fingerprints)
            prints = [self._fingerprints[key] for key in keys]
            await self._link.fetch(self._say(sql.SET_FINGERPRINTS), *zip(*keys, strict=True), prints)
        if self._left:
            await self._link.fetch(self._say(sql.CAPACITY_FREED), list(self._left), list(self._left.values()))
        if self._handled:
            await self._link.fetch(self._say(sql.END_HANDLED), self._handled)
        if self._ended_ids:
            await self._link.fetch(self._say(sql.RECORD_ENDED), self._ended_ids)
        if self._transitions:
            ids, states = zip(*self._transitions, strict=True)
            await self._link.fetch(self._say(sql.RECORD_TRANSITION), ids, states)
