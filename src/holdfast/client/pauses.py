"""Pauses of tasks: of all jobs of a task, or of those with certain arguments. (A queue's pause is the store's own.)

A pause is a small record. A claim of a paused job defers the job, blocked and uncharged, before it runs; the jobs
behind it continue. Resuming marks the record as lifted and releases the deferred jobs, page by page.

No job stays deferred after its pause is lifted, whatever the clocks of the processes show:

1. A job is deferred only if its pause was read after the job was claimed (`confirm`).
2. So once a pause is lifted, only claims that are running at that moment can still defer a job for it. Any process
   removes the mark, by its version, after all of those have ended and the jobs that they deferred are released.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from ..codec import encode_value
from ..core.clock import Clock
from ..core.errors import HoldfastError, InvalidJob
from ..core.job import UNDECODABLE, Record, State
from ..core.lifecycle import Outcome
from ..core.operations import Change, Patch, Where
from ..core.validation import NAME_LIMIT, checked_name
from ..core.waiting import Waiting
from ..store.group_commit import PAGE, GroupCommit
from ..store.protocol import Store, Versioned, records_of
from ..store.worker_writes import RecordKind, WorkerWrites, resumes
from .watched_records import WatchedRecords

logger = logging.getLogger("holdfast")
KIND = "task_pause"
WRITES = WorkerWrites(records=(RecordKind(KIND), RecordKind("pause")), change=resumes())
"""Record kinds of the pauses of tasks, and of queues."""
FRESH = 60.0
"""Maximum age in seconds of the known pauses before a claim."""


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pause of a task; with `where`, only of its jobs that have all these arguments."""

    task: str
    where: dict[str, Any] = {}
    since: int = 0
    """By the store's clock."""
    resumed_at: int | None = None

    @property
    def name(self) -> str:
        """Its name among the records, and in what its jobs wait for."""
        where = ", ".join(f"{key}={_text(value)}" for key, value in sorted(self.where.items()))
        return f"{self.task} where {where}" if where else self.task

    @property
    def waiting_for(self) -> Waiting:
        """What the jobs wait for that are deferred for it."""
        return Waiting("pause", self.name)

    @property
    def flags(self) -> str:
        """The pause as command-line options."""
        where = "".join(f" --where {shlex.quote(f'{key}={_text(value)}')}" for key, value in sorted(self.where.items()))
        return f"--task {shlex.quote(self.task)}{where}"

    def covers(self, record: Record) -> bool:
        """Whether it covers a job of its task."""
        if not self.where:
            return True
        if record.codec != "json":
            return False
        try:
            arguments = msgspec.json.decode(record.payload)
        except UNDECODABLE:
            return False
        return isinstance(arguments, dict) and all(
            key in arguments and _same(arguments[key], value) for key, value in self.where.items()
        )


def checked_pause(task: Any, where: Any = None) -> Pause:
    """A checked pause; InvalidJob if it is invalid."""
    given: Any = {} if where is None else where
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in cast("Mapping[Any, Any]", given)):
        raise InvalidJob(f"where= must be a dict of arguments by name, such as {{'customer': 42}}, not {where!r:.100}")
    given = cast("Mapping[str, Any]", given)
    values = {key: msgspec.json.decode(encode_value(value, what=f"where[{key!r}]")) for key, value in given.items()}
    pause = Pause(checked_name(task, "task"), values)
    if not pause.name.isprintable() or len(pause.name) > 3 * NAME_LIMIT:
        raise InvalidJob(
            f"the task's name and where= must be printable, together at most {3 * NAME_LIMIT} characters,"
            f" not {where!r:.100}"
        )
    return pause


async def active_pauses(store: Store) -> list[Pause]:
    """The pauses of tasks that are not lifted, by name."""
    return [pause for pause in read(await records_of(store, KIND)) if pause.resumed_at is None]


def read(records: Mapping[str, Versioned]) -> list[Pause]:
    """The pauses in a store's records, including lifted ones; undecodable records are ignored."""
    found: list[Pause] = []
    for name, kept in sorted(records.items()):
        with suppress(*UNDECODABLE):
            pause = _decode(kept.value)
            if pause.name == name:
                found.append(pause)
    return found


class TaskPauses:
    """The pauses of a store, as known to one process."""

    def __init__(self, store: Store, commit: GroupCommit, clock: Clock, watched: WatchedRecords) -> None:
        self._store = store
        self._watched = watched
        self._commit = commit
        self._clock = clock
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._reads = 0
        """Number of reads begun so far."""
        self._read = 0
        """The number of the last read that was answered."""
        self._by_task: dict[str, list[Pause]] = {}
        self._lifted: dict[str, tuple[Pause, int]] = {}
        """Lifted pauses by name, with the versions of their records."""
        self._claims: dict[str, tuple[int, dict[str, int]]] = {}
        """By lifted pause: its version, and the fences of the claims that may still defer a job for it, by job."""

    async def refresh(self, max_age: float = 0.0) -> None:
        """Read the pauses, or take them from a read of this process that is at most `max_age` seconds old."""
        async with self._reading:
            await self._read_now(max_age)

    async def _read_now(self, max_age: float = 0.0) -> None:
        if not max_age:
            self._reads += 1
        number = self._read if max_age else self._reads  # an earlier read confirms nothing
        asked, records = self._clock.monotonic(), await self._watched.of(KIND, max_age)
        by_task: dict[str, list[Pause]] = {}
        self._lifted = {}
        for pause in read(records):
            if pause.resumed_at is None:
                by_task.setdefault(pause.task, []).append(pause)
            else:
                self._lifted[pause.name] = pause, records[pause.name].version
        self._by_task, self._read_at, self._read = by_task, asked, number

    async def fresh(self, age: float = FRESH) -> None:
        """The same, if the last read is older than `age` seconds."""
        age = min(age, FRESH)
        if self._clock.monotonic() - self._read_at > age:
            async with self._reading:
                if self._clock.monotonic() - self._read_at > age:  # else another caller has read them meanwhile
                    await self._read_now()

    def covers(self, record: Record) -> bool:
        """Whether a claimed job was paused at the last read; `confirm` checks whether it still is."""
        return self._pause_of(record) is not None

    async def confirm(self, record: Record) -> Outcome:
        """The outcome of a claim whose job seems to be paused, by a read that began after the claim.

        If the pause is lifted, or cannot be read, the job is released to its previous position.
        """
        begun = self._reads
        try:
            async with self._reading:
                if self._read <= begun:  # else a read that began since has been answered to another caller
                    await self._read_now()
        except Exception as error:  # noqa: BLE001  # a driver may raise anything, and the claim must end
            logger.warning(
                "job %s was released and will be claimed again: the pauses of its task could not be read: %s",
                record.id,
                error,
            )
            return Outcome.released()
        pause = self._pause_of(record)
        return Outcome.released() if pause is None else Outcome.paused(pause.waiting_for)

    def _pause_of(self, record: Record) -> Pause | None:
        return next((pause for pause in self._by_task.get(record.task, ()) if pause.covers(record)), None)

    async def set(self, pause: Pause) -> bytes:
        """Have every process defer the jobs of a pause from now on. Returns the value of its record."""
        value = msgspec.json.encode(msgspec.structs.replace(pause, since=await self._store.now()))
        await self._store.put_record(KIND, pause.name, value)
        await self._refresh_soon()
        return value

    async def lift(self, pause: Pause, version: int | None = None) -> bool:
        """Lift a pause and release the deferred jobs; False if there was nothing to lift or release.

        After the pause is marked as lifted, workers release the jobs that could not be released here.
        `version`: only if its record still has this version.
        """
        known = [one for one in read(await records_of(self._store, KIND)) if one.name == pause.name]
        if not known:
            return version is None and await self._free(pause)
        over = msgspec.structs.replace(pause, resumed_at=await self._store.now())
        if not await self._store.put_record(KIND, pause.name, msgspec.json.encode(over), version):
            return False
        await self._refresh_soon()
        try:
            freed = await self._free(pause)
        except HoldfastError as error:
            logger.warning(
                "task %s is resumed; its blocked jobs were not released yet; workers will release them: %s",
                pause.name,
                error,
            )
            freed = True
        return freed or any(one.resumed_at is None for one in known)

    @property
    def lifted(self) -> bool:
        """Whether `release_late` has anything to do, by the last read."""
        return bool(self._lifted)

    async def release_late(self) -> None:
        """Release jobs deferred for lifted pauses; remove lifted pauses for which no claim can defer a job any more."""
        lifted = dict(self._lifted)
        self._claims = {name: kept for name, kept in self._claims.items() if name in lifted}
        for name, (pause, version) in lifted.items():
            claims = await self._may_defer(pause, version)
            self._claims[name] = version, claims
            await self._free(pause)
            if not claims and not (await self._store.find(Where(waiting_for=pause.waiting_for), None, 1)).records:
                # If it is rejected, the pause was set again, or another process has removed it.
                await self._store.put_record(KIND, name, None, version)

    async def _may_defer(self, pause: Pause, version: int) -> dict[str, int]:
        """The claims of a task that were running when its lifted pause was first seen here, and have not ended yet."""
        seen, claims = self._claims.get(pause.name, (0, {}))
        if seen != version:
            return await self._running(pause.task)
        ids = list(claims)
        found = [record for at in range(0, len(ids), PAGE) for record in await self._store.get(ids[at : at + PAGE])]
        return {
            record.id: record.fence
            for record in found
            if record is not None and record.state == State.RUNNING and claims[record.id] == record.fence
        }

    async def _running(self, task: str) -> dict[str, int]:
        claims: dict[str, int] = {}
        cursor = None
        while True:
            found = await self._store.find(Where((State.RUNNING,), task=task), cursor, PAGE)
            claims.update((record.id, record.fence) for record in found.records)
            if (cursor := found.cursor) is None:
                return claims

    async def _free(self, pause: Pause) -> bool:
        """Release page by page, each job at its previous position: it was due before. Returns whether there was any."""
        queued, freed = Patch(state=State.QUEUED), False
        while page := (await self._store.find(Where(waiting_for=pause.waiting_for), None, PAGE)).records:
            changes = [Change(record.id, record.state, record.fence, queued) for record in page]
            if not any(await self._commit.change(changes)):
                return freed  # all of them changed meanwhile, or cannot be changed: the next run will see
            freed = True
        return freed

    async def _refresh_soon(self) -> None:
        """Read the pauses now; if that fails, the next claim reads them."""
        try:
            await self.refresh()
        except HoldfastError:
            self._read_at = -math.inf


_decode = msgspec.json.Decoder(Pause).decode


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _same(one: Any, other: Any) -> bool:
    # As JSON has it: true is not 1, but 1.0 is.
    return one == other and isinstance(one, bool) == isinstance(other, bool)
