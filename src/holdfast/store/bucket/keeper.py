"""Keeping the log short: ended jobs go to `done/`, the state to a snapshot, and what nobody needs any more goes.

Removing is where the danger is (see `log.py`), so it is slow to act: only entries at or below the last snapshot but
one, only what is older than `clean_after` by the bucket's own clock, only what holds nothing of a job that is kept; and
never the two newest snapshots. Snapshots are made, and cleaning is done, only from a state that was verified.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from ...clock import MICROS, Clock, Entropy
from ...job import TERMINAL, Record
from .contents import Contents
from .log import Log, Stale
from .pace import Pace
from .replica import Done, dump
from .requests import Counted
from .seam import Listed
from .wire import Mark, Segment, encode, number_of, snapshot_key

if TYPE_CHECKING:
    from .engine import Wish

logger = logging.getLogger("holdfast")
AMPLIFY = 2
"""A snapshot is due when the log since the last one is this many times its size: so they cost half as much as it."""
PER_JOB = 80
"""Bytes of a snapshot for each job or key, about."""
ARCHIVE_AFTER = 60.0
"""Seconds after its end for which a job stays in the state: a settlement that is sent again is recognised there."""
SEGMENT_BYTES = 4_000_000
PARALLEL = 8


class Keeper:
    """Asked after commits; works in the background, one round at a time."""

    def __init__(
        self,
        bucket: Counted,
        log: Log,
        contents: Contents,
        *,
        entropy: Entropy,
        clock: Clock,
        pace: Pace,
        write: Callable[[Wish], Awaitable[Done]],
    ) -> None:
        self._bucket = bucket
        self._log = log
        self._contents = contents
        self._entropy = entropy
        self._clock = clock
        self._pace = pace
        self._write = write
        self._busy = False

    def is_due(self) -> bool:
        replica = self._log.replica
        entries = replica.position - replica.snapshot
        expected = max(replica.snapshot_size, PER_JOB * (len(replica.jobs.jobs) + len(replica.jobs.keys)))
        large = replica.bytes_since >= AMPLIFY * expected
        return not self._busy and entries >= self._pace.snapshot_entries and large

    async def keep(self) -> None:
        """One round: archive, snapshot, clean. What goes wrong is tried again after the next commit."""
        if self._busy:
            return
        self._busy = True
        try:
            await self._archive()
            await self._snapshot()
            await self.clean()
        except Stale:
            pass  # whoever reads or writes next joins again
        except Exception as error:  # noqa: BLE001  # nothing depends on this round
            logger.warning("keeping the log short failed: %s: %s", type(error).__name__, error)
        finally:
            self._busy = False

    # -- the ended

    async def _archive(self) -> None:
        replica = self._log.replica
        before = self._clock.now() - int(ARCHIVE_AFTER * MICROS)
        over = [r for r in replica.jobs.jobs.values() if r.state in TERMINAL and (r.finished_at or before) < before]
        segments: list[Segment] = []
        parts = list(_parts(over, self._pace.archive_jobs))
        for at in range(0, len(parts), PARALLEL):
            names = [f"{self._entropy.token():016x}" for _ in parts[at : at + PARALLEL]]
            written = zip(names, parts[at : at + PARALLEL], strict=True)
            segments += await asyncio.gather(
                *(self._contents.write_segment(name, replica, part) for name, part in written)
            )
        if segments and self._log.replica is replica:
            await self._write(_wish(segments=segments))

    # -- snapshots

    async def _snapshot(self) -> None:
        await self._log.trust()
        replica = self._log.replica
        number, data = replica.position, encode(dump(replica))
        await self._log.verify(replica, number + 1)
        await self._bucket.put_surely(snapshot_key(number), data)  # another process's would be the same
        await self._write(_wish(marks=[Mark(number, len(data))]))

    # -- cleaning

    async def clean(self) -> None:
        """Remove what nobody needs any more."""
        snapshots = await self._bucket.list("snapshot/")
        if len(snapshots) < 2:
            return
        await self._log.trust()
        replica = self._log.replica
        newest, floor = snapshots[-1], number_of(snapshots[-2].key)
        old = newest.modified - int(self._pace.clean_after * MICROS)
        needed = replica.needed_entries()
        goes = [each.key for each in snapshots[:-2] if each.modified < old]
        goes += [
            each.key
            for each in await self._bucket.list("log/")
            if number_of(each.key) <= floor and each.modified < old and number_of(each.key) not in needed
        ]
        for left_behind in ("inbox/", "probe/"):
            goes += _older(await self._bucket.list(left_behind), old)
        goes += _unneeded(await self._bucket.list("done/"), old, {f"done/{name}" for name in replica.archived})
        goes += _unneeded(await self._bucket.list("payload/"), old - 86400 * MICROS, replica.needed_objects())
        if self._log.replica is replica and goes:
            await self._bucket.delete(goes)


def _parts(records: list[Record], jobs: int) -> Iterable[list[Record]]:
    """Ended jobs that go together: those that are kept for ever apart, neighbours by id, not too many at once."""
    for for_ever in (False, True):
        part: list[Record] = []
        size = 0
        for record in sorted((r for r in records if (r.expires_at is None) is for_ever), key=lambda r: r.id):
            part.append(record)
            size += len(record.payload) + len(record.result or b"") + 500
            if len(part) >= jobs or size >= SEGMENT_BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part


def _older(listed: Iterable[Listed], than: int) -> list[str]:
    return [each.key for each in listed if each.modified < than]


def _unneeded(listed: Iterable[Listed], than: int, needed: set[str]) -> list[str]:
    return [key for key in _older(listed, than) if key not in needed]


def _wish(segments: list[Segment] | None = None, marks: list[Mark] | None = None) -> Wish:
    from .engine import Wish

    return Wish(segments=segments or [], marks=marks or [])
