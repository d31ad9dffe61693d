"""Pauses of tasks: of all jobs of a task, or of those with certain arguments. (A queue's pause is the store's own.)

A pause is a small record. Whoever claims a job of it puts the job aside, blocked and uncharged, before it runs; those
behind it go on. To resume is to mark the record and to free what waits for it, page by page. A process that had not yet
heard may put jobs aside for a little longer: the mark stays for a while, and every look frees what came late.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from .checks import NAME_LIMIT, checked_name
from .clock import MICROS, Clock
from .codec import encode_value
from .errors import InvalidJob
from .job import UNDECODABLE, Change, Patch, Record, State, Where
from .lifecycle import Outcome
from .store.commit import GroupCommit
from .store.protocol import Store, Versioned

KIND = "task_pause"
PAUSE = "pause:"
"""How the words begin that say what a job waits for, where it was put aside."""
PAGE = 1000
"""Jobs that one step frees."""
FRESH = 60.0
"""Seconds after which what is known of pauses is read again before anything is claimed, at the latest."""
LATE = 300.0
"""Seconds for which a resumed pause is remembered: longer than anybody goes by what was read before."""


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task whose jobs are not started; with `where`, those of its jobs that have all these arguments."""

    task: str
    where: dict[str, Any] = {}
    since: int = 0
    """By the store's clock."""
    resumed_at: int | None = None

    @property
    def name(self) -> str:
        """Its name among the records, and what its jobs wait for."""
        said = ", ".join(f"{key}={_text(value)}" for key, value in sorted(self.where.items()))
        return f"{self.task} where {said}" if said else self.task

    @property
    def waits(self) -> str:
        """What the jobs say that are put aside for it."""
        return f"{PAUSE}{self.name}"

    @property
    def flags(self) -> str:
        """The same for the command line."""
        said = "".join(f" --where {shlex.quote(f'{key}={_text(value)}')}" for key, value in sorted(self.where.items()))
        return f"--task {shlex.quote(self.task)}{said}"

    def covers(self, record: Record) -> bool:
        """Whether a job of its task is meant."""
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
    """A pause as it was asked for; InvalidJob says what is wrong with it."""
    given: Any = {} if where is None else where
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in cast("Mapping[Any, Any]", given)):
        raise InvalidJob(f"where= is a dict of arguments by name, such as {{'customer': 42}}, not {where!r:.100}")
    given = cast("Mapping[str, Any]", given)
    values = {key: msgspec.json.decode(encode_value(value, what=f"where[{key!r}]")) for key, value in given.items()}
    pause = Pause(checked_name(task, "task"), values)
    if not pause.name.isprintable() or len(pause.name) > 3 * NAME_LIMIT:
        raise InvalidJob(f"where= must be short and printable, not {where!r:.100}")
    return pause


def read(records: Mapping[str, Versioned]) -> list[Pause]:
    """The pauses that a store's records tell of, the resumed included; what cannot be read is none."""
    found: list[Pause] = []
    for name, kept in sorted(records.items()):
        with suppress(*UNDECODABLE):
            pause = _decode(kept.value)
            if pause.name == name:
                found.append(pause)
    return found


class Holds:
    """What one process knows of the pauses of a store."""

    def __init__(self, store: Store, commit: GroupCommit, clock: Clock) -> None:
        self._store = store
        self._commit = commit
        self._clock = clock
        self._read_at = -math.inf
        self._by_task: dict[str, list[Pause]] = {}
        self._resumed: list[tuple[Pause, int]] = []

    async def refresh(self) -> None:
        """Read what is paused."""
        asked, records = self._clock.monotonic(), await self._store.records(KIND)
        self._by_task, self._resumed = {}, []
        for pause in read(records):
            if pause.resumed_at is None:
                self._by_task.setdefault(pause.task, []).append(pause)
            else:
                self._resumed.append((pause, records[pause.name].version))
        self._read_at = asked

    async def fresh(self, age: float = FRESH) -> None:
        """The same, where it was not read for so long."""
        if self._clock.monotonic() - self._read_at > min(age, FRESH):
            await self.refresh()

    def outcome(self, record: Record) -> Outcome | None:
        """How a claim ends at once, where its job is paused."""
        pauses = self._by_task.get(record.task)
        if pauses is None:
            return None
        pause = next((one for one in pauses if one.covers(record)), None)
        if pause is None:
            return None
        stale = self._clock.monotonic() - self._read_at > LATE / 2
        return Outcome.released() if stale else Outcome.paused(pause.waits)

    async def set(self, pause: Pause) -> None:
        """Have the jobs of a pause put aside from now on, by everybody."""
        since = msgspec.structs.replace(pause, since=await self._store.now())
        await self._store.put_record(KIND, pause.name, msgspec.json.encode(since))
        await self.refresh()

    async def lift(self, pause: Pause) -> bool:
        """Have them run again, and free those that were put aside; False where there was nothing to lift or to free."""
        known = [one for one in read(await self._store.records(KIND)) if one.name == pause.name]
        if known:
            over = msgspec.structs.replace(pause, resumed_at=await self._store.now())
            await self._store.put_record(KIND, pause.name, msgspec.json.encode(over))
            await self.refresh()
        freed = await self._free(pause)
        return freed or any(one.resumed_at is None for one in known)

    async def free_the_late(self) -> None:
        """Free what was put aside by those who had not heard that it was resumed; at last, forget that it ever was."""
        for pause, version in self._resumed:
            await self._free(pause)
            assert pause.resumed_at is not None
            if await self._store.now() - pause.resumed_at > LATE * MICROS:
                await self._store.put_record(KIND, pause.name, None, version)

    async def _free(self, pause: Pause) -> bool:
        """Page by page, each job from where it stood: before it was put aside, it was due. Whether there was any."""
        queued, freed = Patch(state=State.QUEUED), False
        while page := (await self._store.find(Where(waits=pause.waits), None, PAGE)).records:
            await self._commit.change([Change(record.id, record.state, record.fence, queued) for record in page])
            freed = True
        return freed


_decode = msgspec.json.Decoder(Pause).decode


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _same(one: Any, other: Any) -> bool:
    # As JSON has it: true is not 1, but 1.0 is.
    return one == other and isinstance(one, bool) == isinstance(other, bool)
