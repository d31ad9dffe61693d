"""One bulk operation: read a page of jobs, decide for each, write all changes in one commit, and count."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypedDict, Unpack

import msgspec

from ..core import internal as extra
from ..core import lifecycle
from ..core.damage import damage_of
from ..core.errors import InvalidJob, InvalidState, JobNotFound, StoreUnavailable
from ..core.job import TERMINAL, Record
from ..core.operations import Change, Where
from ..core.writes import Writes
from ..observe.actors import note_changed
from ..observe.events import Events
from ..store.group_commit import PAGE
from .operations import TRIES, OperatedFlows, Operations
from .session import Session
from .unique import rivals as rivals_of

logger = logging.getLogger("holdfast")
LOGGED = 10
"""Skipped jobs of one operation whose reason is logged; all are counted."""
ACTIONS = {"cancel": "cancelled", "retry": "retried", "delete": "deleted", "move": "moved"}
"""Actions, with their past participles."""


class Changed(msgspec.Struct, frozen=True):
    """The counts of one step of a bulk operation, or of all steps so far."""

    matched: int
    """Jobs that match, or those of the ids that exist."""
    changed: int
    """None in a dry run."""
    skipped: int
    """Jobs that were not changed. None in a dry run."""
    looked: int
    """Jobs that were read."""
    cursor: str | None
    """Continues with the rest; None: done."""
    reasons: dict[str, int] = {}
    """How many were skipped and why: `state` (wrong state), `moved` (changed since it was found), `not_found`, `flow`
    (its flow needs it, or has nothing to retry), `key` (another unfinished job has its key), `damaged` (its stored data
    cannot be decoded), `follow_up` (its follow-up is pending and cannot be stored), `refused` (this caller may not),
    `scope` (its flow is not within the token's scope)."""


OnProgress = Callable[[Changed], object]
"""Called on the app's loop after each step with the totals so far; if it returns False, this step is the last."""


class Tally:
    """The exact running counts of an operation."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._logged = 0
        self.matched = self.changed = self.looked = 0
        self.reasons: dict[str, int] = {}

    def skip(self, reason: str, error: BaseException | None = None, number: int = 1, job: str = "a job") -> None:
        """Count jobs that are left unchanged. The error, if given, is logged; a wrong state needs no explanation.

        `job`: its name in the log, if the error does not name it.
        """
        self.reasons[reason] = self.reasons.get(reason, 0) + number
        if error is not None and self._logged < LOGGED:
            self._logged += 1
            last = "; further skipped jobs are not logged" if self._logged == LOGGED else ""
            logger.warning("%s was not %s: %s%s", job, self._done, error, last)

    def seen(self, cursor: str | None) -> Changed:
        skipped = sum(self.reasons.values())
        return Changed(self.matched, self.changed, skipped, self.looked, cursor, dict(self.reasons))


class BulkOptions(TypedDict, total=False):
    """The options of one kind of bulk operation."""

    states: tuple[str, ...]
    """If any are given, only jobs that are still in one of them are changed."""
    to: str
    """The task that a move gives them."""
    spacing: float
    """Seconds between the due times of two retried jobs."""
    spaced: int
    """How many jobs an earlier step has retried."""


class BulkChange:
    """A running bulk operation."""

    def __init__(
        self,
        session: Session,
        action: str,
        *,
        operations: Operations,
        flows: OperatedFlows,
        events: Events,
        **options: Unpack[BulkOptions],
    ) -> None:
        self._session = session
        self._action = action
        self._operations = operations
        self._flows = flows
        self._events = events
        self._states = options.get("states", ())
        self._to = options.get("to", "")
        self._spacing = options.get("spacing", 0.0)
        self._spaced = options.get("spaced", 0)
        self.tally = Tally(ACTIONS[action])

    async def all(self, where: Where, writes: Writes, *, dry_run: bool, progress: OnProgress | None) -> int:
        """Change all that match, page by page; returns how many. In a dry run: how many match."""
        session, action, tally, cursor = self._session, self._action, self.tally, None
        self._states = where.states
        with writes:
            while True:
                found = await session.store.find(where, cursor, PAGE)
                records, cursor = found.records, found.cursor
                if action == "delete":
                    needed = await self._operations.needed(session, records)
                    if needed:
                        tally.skip("flow", number=len(needed))
                    records = [record for record in records if record.id not in needed]
                tally.matched += len(found.records)
                tally.looked += len(found.records)
                if action == "delete" and not dry_run:
                    await self._plain(records, writes)
                elif not dry_run:
                    await self.page(records, writes)
                if progress is not None and progress(tally.seen(cursor)) is False:
                    cursor = None
                if cursor is None:
                    return tally.matched - sum(tally.reasons.values()) if dry_run else tally.changed

    async def page(self, records: Sequence[Record], writes: Writes) -> None:
        """Change these jobs by the same rules as a single job."""
        session, action, tally = self._session, self._action, self.tally
        plain = list(records)
        if action == "retry":
            plain = await _retryable(session, records, tally)
        elif action == "delete" and (needed := await self._operations.needed(session, records)):
            tally.skip("flow", number=len(needed))
            plain = [record for record in records if record.id not in needed]
        flows: dict[str, list[Record]] = {}
        for record in plain:
            flow = extra.read(record.extra).flow
            if flow is not None and action != "move" and (action == "retry" or flow == record.id):
                flows.setdefault(flow, []).append(record)
        if action == "retry" and flows:
            flows = await _retried_by_flow(session, flows)
        by_flow = {record.id for members in flows.values() for record in members}
        plain = [record for record in plain if record.id not in by_flow]
        changed = await self._plain(plain, writes)
        if action == "cancel":
            in_flows = {record.id for record in plain if extra.flow_of(record) is not None}
            if ended := [id for id in changed if id in in_flows]:
                await self._flows.process_now(ended)
        for flow, members in flows.items():
            await self._flow(flow, members, writes)

    async def _flow(self, flow: str, members: Sequence[Record], writes: Writes) -> None:
        """Change a flow as a whole, or retry some of its jobs: it is read once."""
        action, tally = self._action, self.tally
        ids = [record.id for record in members]
        try:
            if action == "retry":
                changed = await self._flows.retry_jobs(flow, None if flow in ids else ids)
                done = sum(id in changed or id == flow for id in ids)
            elif action == "cancel":
                done = int(await self._operations.cancel(flow))
            else:
                await self._operations.delete(flow)
                done = 1
        except JobNotFound:
            tally.skip("not_found", number=len(ids))
        except (InvalidState, InvalidJob) as error:
            reason, name = ("refused", f"flow {flow}") if isinstance(error, InvalidJob) else ("flow", "a job")
            tally.skip(reason, error, number=len(ids), job=name)
        else:
            tally.changed += done
            writes.made += done
            if done < len(ids):
                tally.skip("state", number=len(ids) - done)

    def _decision(self) -> Callable[[Record], Change | None]:
        action = self._action
        if action == "cancel":
            return partial(lifecycle.cancel, rules=self._session.rules)
        if action == "move":
            return partial(lifecycle.move, task=self._to)
        if action == "retry":
            return self._retry if self._spacing else lifecycle.retry
        return lifecycle.delete

    def _retry(self, record: Record) -> Change:
        """Retries a job at its place in the rate. A place is not used twice, also if the change is rejected."""
        change = lifecycle.retry(record, self._spaced * self._spacing)
        self._spaced += 1
        return change

    async def _plain(self, records: Sequence[Record], writes: Writes) -> list[str]:
        """Change these jobs in one commit; a job that changed since it was read is read and decided again."""
        session, action, tally, states = self._session, self._action, self.tally, self._states
        decide, changed = self._decision(), list[str]()
        for _ in range(TRIES):
            wanted: list[tuple[Record, Change]] = []
            for record in records:
                try:
                    change = decide(record)
                except InvalidState as error:
                    tally.skip("state", error)
                    continue
                if change is None:
                    tally.skip("state")
                else:
                    wanted.append((record, change))
            if ended := [one for one, _ in wanted if one.extra is not None and one.state in TERMINAL]:
                failed = await self._flows.store_follow_ups(ended)
                for id, error in failed.items():
                    tally.skip("follow_up", error, job=f"job {id}")
                wanted = [(record, change) for record, change in wanted if record.id not in failed]
            if not wanted:
                return changed
            moved: list[str] = []
            for (record, change), done in zip(wanted, await commit_changes(session, wanted, tally), strict=True):
                if done:
                    tally.changed += 1
                    writes.made += 1
                    changed.append(record.id)
                    note_changed(record)
                    self._events.changed(record, change)
                elif done is not None:
                    moved.append(record.id)
            if not moved:
                return changed
            found = [record for record in await session.store.get(moved) if record is not None]
            if len(found) < len(moved):
                tally.skip("not_found", number=len(moved) - len(found))
            records = [record for record in found if not states or record.state in states]
            if len(records) < len(found):  # it is no longer in one of the wanted states
                tally.skip("moved", number=len(found) - len(records))
            if not records:
                return changed
        left = f"{len(records)} jobs were not {ACTIONS[action]} (the first is {records[0].id!r})"
        raise StoreUnavailable(f"{left}: they changed during {TRIES} tries; repeat the call")


async def _retryable(session: Session, records: Sequence[Record], tally: Tally) -> list[Record]:
    rivals, wanted = await rivals_of(session, records), list[Record]()
    for record in records:
        if damaged := damage_of(record):
            reason = f"its stored data cannot be decoded ({', '.join(damaged)}), so it cannot run; delete the job"
            tally.skip("damaged", InvalidState(record.id, record.state, reason))
        elif (rival := rivals.get(record.id)) is not None:
            reason = f"its key {record.key!r} now belongs to job {rival!r}; wait until that job ends, or cancel it"
            tally.skip("key", InvalidState(record.id, record.state, reason))
        else:
            wanted.append(record)
    return wanted


async def _retried_by_flow(session: Session, flows: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """The jobs that are retried together with their dependents: they have ended, and their flow is kept."""
    kept = {flow.id for flow in await session.store.get(list(flows)) if flow is not None}
    ended = {
        flow: [record for record in members if record.id == flow or record.state in TERMINAL]
        for flow, members in flows.items()
        if flow in kept
    }
    return {flow: members for flow, members in ended.items() if members}


async def commit_changes(session: Session, wanted: Sequence[tuple[Record, Change]], tally: Tally) -> list[bool | None]:
    """Write changes in one commit; None for a change that this caller may not make, which affects no other."""
    try:
        return [*await session.commit.change([change for _, change in wanted])]
    except InvalidJob as error:
        if len(wanted) == 1:
            tally.skip("refused", error, job=f"job {wanted[0][0].id}")
            return [None]
    half = len(wanted) // 2
    return [*await commit_changes(session, wanted[:half], tally), *await commit_changes(session, wanted[half:], tally)]
