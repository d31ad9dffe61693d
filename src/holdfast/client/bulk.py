"""Retry, cancel and delete in bulk: read a page, decide about each job, write all changes in one commit, count."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import msgspec

from ..core import internal as extra
from ..core import lifecycle
from ..core.damage import damage_of
from ..core.errors import HoldfastError, InvalidJob, JobNotFound, StoreUnavailable, WrongState
from ..core.job import TERMINAL, Record, State
from ..core.operations import Change, Where
from ..core.validation import checked_cursor, checked_seconds, checked_text
from ..core.writes import Writes
from ..store.group_commit import PAGE
from ..views import states_named
from .operations import TRIES, Operating, where_of
from .runtime import carried
from .search import WINDOW, Filter, Looked, Sought, search

logger = logging.getLogger("holdfast")
CHANGE_LIMIT = 1000
"""Jobs that one call of `change_many` changes, at the most."""
LOGGED = 10
"""Jobs of one operation whose reason to be skipped is logged; all are counted."""
ACTIONS = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}
"""With the words for what is done then."""


class Changed(msgspec.Struct, frozen=True):
    """What one step of a bulk operation did, or all of its steps so far."""

    matched: int
    """Jobs that it was about: those that match, or those of the ids that there are."""
    changed: int
    """None in a dry run."""
    skipped: int
    """Those that were not changed. None in a dry run."""
    looked: int
    """Jobs that were read."""
    cursor: str | None
    """Goes on with the rest; None: done."""
    reasons: dict[str, int] = {}
    """How many were skipped and why: `state` (in no state for it), `moved` (no longer as it was found), `not_found`,
    `flow` (its flow needs it, or has nothing to retry), `key` (another live job has its key), `damaged` (what is stored
    cannot be decoded), `refused` (this caller may not), `scope` (a flow is not within the token's)."""


OnProgress = Callable[[Changed], object]
"""Called on the app's loop after each step, with the totals so far; where it answers False, this step is the last."""


class Tally:
    """The exact counts of an operation, as it goes."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._logged = 0
        self.matched = self.changed = self.looked = 0
        self.reasons: dict[str, int] = {}

    def skip(self, reason: str, error: Exception | None = None, number: int = 1) -> None:
        """Jobs are left as they are. An error says why; a job that is in no state for it needs no words."""
        self.reasons[reason] = self.reasons.get(reason, 0) + number
        if error is not None and self._logged < LOGGED:
            self._logged += 1
            last = "; more are not logged" if self._logged == LOGGED else ""
            logger.warning("not %s: %s%s", self._done, error, last)

    def seen(self, cursor: str | None) -> Changed:
        """The counts now."""
        skipped = sum(self.reasons.values())
        return Changed(self.matched, self.changed, skipped, self.looked, cursor, dict(self.reasons))


class Bulk(Operating):
    """The operations of an app on many jobs at once."""

    @carried
    async def change_many(
        self,
        action: str,
        wanted: Filter | None = None,
        *,
        ids: Sequence[str] = (),
        all: bool = False,  # noqa: A002  # the field of the HTTP API
        cursor: str | None = None,
        dry_run: bool = False,
    ) -> Changed:
        """Cancel, retry or delete the jobs of these ids, or one step of all that match; the cursor goes on.

        A filter that names nothing but `until` means every job, and needs `all`. `dry_run`: say what matches, and
        change nothing.
        """
        if action not in ACTIONS:
            raise InvalidJob(f"jobs can be changed by {', '.join(ACTIONS)}, not by {action!r:.100}")
        if isinstance(ids, str) or not isinstance(ids, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(f"ids= is a list of ids, not {ids!r:.100}")
        if wanted is None and all and not ids:
            wanted = Filter()
        if (wanted is None) == (not ids):
            raise InvalidJob("give a filter or ids, and not both")
        if len(ids) > CHANGE_LIMIT:
            raise InvalidJob(f"at most {CHANGE_LIMIT} ids at once, not {len(ids)}")
        tally, states = Tally(ACTIONS[action]), tuple[str, ...]()
        if wanted is None:
            records = await self.session.store.get(list(dict.fromkeys(checked_text(id, "an id") for id in ids)))
            found = Looked([record for record in records if record is not None], None, len(records), None)
            gone = len(records) - len(found.records)
        else:
            sought, gone = Sought(wanted), 0
            if sought.everything and not all:
                raise InvalidJob(
                    f"this filter names nothing, so every job matches; to {action} them all, set all= to true"
                )
            if all and not sought.everything:
                raise InvalidJob("give a filter that names something, or all=, and not both")
            found, states = await self._look(sought, cursor, CHANGE_LIMIT, WINDOW), sought.where.states
        tally.matched, tally.looked = len(found.records), found.looked
        if dry_run:
            return tally.seen(found.cursor)
        if gone:
            tally.skip("not_found", number=gone)
        records = found.records
        if wanted is not None and wanted.scope is not None:  # other jobs of a flow, which go with one, may be outside
            records = [record for record in records if extra.read(record.extra).flow is None]
            if len(records) < len(found.records):
                tally.skip("scope", number=len(found.records) - len(records))
        then = "look at the jobs before you retry them again" if action == "retry" else f"{action} them again"
        with Writes(f"{action} of {tally.matched} jobs", then, retry_safe=action != "retry") as writes:
            await self._change_page(action, records, tally, writes, states)
        return tally.seen(found.cursor)

    @carried
    async def retry_dead(
        self, *, queue: str | None = None, dry_run: bool = False, progress: OnProgress | None = None
    ) -> int:
        """Run every job that is dead now again, from attempt 0; how many. `dry_run`: how many are dead.

        Whatever ends it half way, the same call goes on with those that are still dead.
        """
        where = where_of((State.DEAD,), queue, None, None)
        writes = Writes("the retry of the dead jobs", "retry_dead again goes on with those that are still dead")
        return await self._change_pages("retry", where, writes, dry_run=dry_run, progress=progress)

    @carried
    async def purge(
        self,
        *,
        state: str | Sequence[str] = "dead",
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        older_than: float | timedelta | None = None,
        dry_run: bool = False,
        progress: OnProgress | None = None,
    ) -> int:
        """Delete every job that matches (the dead, unless told otherwise); says how many.

        Running ones stay, and so do jobs of flows that have not ended. `dry_run`: how many would be deleted. Whatever
        ends it half way, the same call removes the rest.
        """
        states = states_named(state)
        if not states:
            raise InvalidJob("name the state of the jobs to purge")
        if State.RUNNING in states:
            raise InvalidJob("running jobs cannot be purged; cancel them first")
        age = None if older_than is None else checked_seconds(older_than, "older_than")
        before = None if age is None else await self.session.store.now() - int(age * 1_000_000)
        where = where_of(states, queue, task, tag, finished_before=before)
        writes = Writes("the purge", "purge again removes the rest")
        return await self._change_pages("delete", where, writes, dry_run=dry_run, progress=progress)

    async def _change_pages(
        self, action: str, where: Where, writes: Writes, *, dry_run: bool, progress: OnProgress | None
    ) -> int:
        """Change all that match, page by page; how many. In a dry run: how many match."""
        tally, cursor = Tally(ACTIONS[action]), None
        with writes:
            while True:
                found = await self.session.store.find(where, cursor, PAGE)
                records, cursor = found.records, found.cursor
                if action == "delete":
                    needed = await self._needed(records)
                    if needed:
                        tally.skip("flow", number=len(needed))
                    records = [record for record in records if record.id not in needed]
                tally.matched += len(found.records)
                tally.looked += len(found.records)
                if action == "delete" and not dry_run:
                    await self._change_plain(action, records, tally, writes, where.states)
                elif not dry_run:
                    await self._change_page(action, records, tally, writes, where.states)
                if progress is not None and progress(tally.seen(cursor)) is False:
                    cursor = None
                if cursor is None:
                    return tally.matched - sum(tally.reasons.values()) if dry_run else tally.changed

    async def _change_page(
        self, action: str, records: Sequence[Record], tally: Tally, writes: Writes, states: tuple[str, ...]
    ) -> None:
        """Change these jobs by the rules that hold for one of them."""
        plain = list(records)
        if action == "retry":
            plain = await self._retryable(records, tally)
        elif action == "delete" and (needed := await self._needed(records)):
            tally.skip("flow", number=len(needed))
            plain = [record for record in records if record.id not in needed]
        flows: dict[str, list[Record]] = {}
        for record in plain:
            if (flow := extra.read(record.extra).flow) is not None and (action == "retry" or flow == record.id):
                flows.setdefault(flow, []).append(record)
        if action == "retry" and flows:
            flows = await self._retried_by_flow(flows)
        by_flow = {record.id for members in flows.values() for record in members}
        plain = [record for record in plain if record.id not in by_flow]
        changed = await self._change_plain(action, plain, tally, writes, states)
        if action == "cancel":
            in_flows = {record.id for record in plain if extra.flow_of(record) is not None}
            if told := [id for id in changed if id in in_flows]:
                await self.flows.carry_on(told)
        for flow, members in flows.items():
            await self._change_flow(action, flow, members, tally, writes)

    async def _retryable(self, records: Sequence[Record], tally: Tally) -> list[Record]:
        rivals, wanted = await self._rivals(records), list[Record]()
        for record in records:
            if damaged := damage_of(record):
                said = f"what is stored of it cannot be decoded ({', '.join(damaged)}), so it cannot run; delete it"
                tally.skip("damaged", WrongState(record.id, record.state, said))
            elif (rival := rivals.get(record.id)) is not None:
                said = f"its key {record.key!r} belongs to job {rival!r} by now, which lives"
                tally.skip("key", WrongState(record.id, record.state, said))
            else:
                wanted.append(record)
        return wanted

    async def _retried_by_flow(self, flows: dict[str, list[Record]]) -> dict[str, list[Record]]:
        """Those that are retried together with what waits for them: they have ended, and their flow is kept."""
        kept = {flow.id for flow in await self.session.store.get(list(flows)) if flow is not None}
        ended = {
            flow: [record for record in members if record.id == flow or record.state in TERMINAL]
            for flow, members in flows.items()
            if flow in kept
        }
        return {flow: members for flow, members in ended.items() if members}

    async def _change_flow(
        self, action: str, flow: str, members: Sequence[Record], tally: Tally, writes: Writes
    ) -> None:
        """Change a flow as a whole, or retry some of its jobs: it is looked through once."""
        ids = [record.id for record in members]
        try:
            if action == "retry":
                changed = await self.flows.retry_jobs(flow, None if flow in ids else ids)
                done = sum(id in changed or id == flow for id in ids)
            elif action == "cancel":
                done = int(await self.cancel(flow))
            else:
                await self.delete(flow)
                done = 1
        except JobNotFound:
            tally.skip("not_found", number=len(ids))
        except (WrongState, InvalidJob) as error:
            reason = "refused" if isinstance(error, InvalidJob) else "flow"
            tally.skip(reason, error, number=len(ids))
        else:
            tally.changed += done
            writes.made += done
            if done < len(ids):
                tally.skip("state", number=len(ids) - done)

    async def _change_plain(
        self, action: str, records: Sequence[Record], tally: Tally, writes: Writes, states: tuple[str, ...]
    ) -> list[str]:
        """Change these jobs in one commit; one that has moved since it was read is read and decided about again."""
        decide, changed = self._decision(action), list[str]()
        for _ in range(TRIES):
            wanted: list[tuple[Record, Change]] = []
            for record in records:
                try:
                    change = decide(record)
                except WrongState as error:
                    tally.skip("state", error)
                    continue
                if change is None:
                    tally.skip("state")
                else:
                    wanted.append((record, change))
            if not wanted:
                return changed
            moved: list[str] = []
            for (record, change), done in zip(wanted, await self._commit(wanted, tally), strict=True):
                if done:
                    tally.changed += 1
                    writes.made += 1
                    changed.append(record.id)
                    self.events.changed(record, change)
                elif done is not None:
                    moved.append(record.id)
            if not moved:
                return changed
            found = [record for record in await self.session.store.get(moved) if record is not None]
            if len(found) < len(moved):
                tally.skip("not_found", number=len(moved) - len(found))
            records = [record for record in found if not states or record.state in states]
            if len(records) < len(found):  # it is none of those that were asked for any more
                tally.skip("moved", number=len(found) - len(records))
        raise StoreUnavailable(f"{len(records)} jobs were not {ACTIONS[action]}: the store refused {TRIES} times")

    async def _commit(self, wanted: Sequence[tuple[Record, Change]], tally: Tally) -> list[bool | None]:
        """Write changes in one commit; None for one that this caller may not make, which keeps no other from it."""
        try:
            return [*await self.session.commit.change([change for _, change in wanted])]
        except InvalidJob as error:
            if len(wanted) == 1:
                tally.skip("refused", error)
                return [None]
        half = len(wanted) // 2
        return [*await self._commit(wanted[:half], tally), *await self._commit(wanted[half:], tally)]

    def _decision(self, action: str) -> Callable[[Record], Change | None]:
        if action == "cancel":
            return partial(lifecycle.cancel, rules=self.session.rules)
        return lifecycle.retry if action == "retry" else lifecycle.delete

    async def _look(self, sought: Sought, cursor: str | None, limit: int, window: int) -> Looked:
        try:
            return await search(self.session.store, sought, checked_cursor(cursor), limit, window)
        except (ValueError, OverflowError) as error:
            if cursor is None or isinstance(error, HoldfastError):
                raise
            raise InvalidJob(f"this cursor is not one that a page gave: {cursor!r:.100}") from None
