"""Log compaction: moves ended jobs to `done/`, writes snapshots of the state, and deletes unneeded objects.

Deletion is dangerous (see `log.py`), so it is conservative: only entries at or below the last snapshot but one, older
than `clean_after` by the bucket's own clock, without data of a job that is kept; never the two newest snapshots.
Snapshots and cleaning use only a verified state.

A payload object may be old while the entry that needs it is still to come, from a paused writer. So every cleaning
follows a mark in the log, and an entry that needs objects from before the last mark is refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from copy import copy

from ...core.clock import MICROS, Clock, Entropy
from ...core.job import TERMINAL, Record
from .contents import Contents
from .log import Log, Stale
from .log_format import Mark, Segment, encode, log_key, number_of, snapshot_key
from .protocol import Listed
from .replica import Done, Snapshot, dump, ended_in
from .requests import Counted
from .timings import Timings
from .write_request import WriteRequest

logger = logging.getLogger("holdfast")
AMPLIFY = 2
"""A snapshot is due when the log since the last one is this many times its size: snapshots cost half as much as it."""
PER_JOB = 80
"""Bytes of a snapshot for each job or key, about."""
SEGMENT_BYTES = 4_000_000
"""Bytes of one segment of ended jobs, about."""
PARALLEL = 8
"""Segments that are written at the same time."""


class Compactor:
    """Checked after commits; runs in the background, one round at a time."""

    def __init__(
        self,
        bucket: Counted,
        log: Log,
        contents: Contents,
        *,
        entropy: Entropy,
        clock: Clock,
        timings: Timings,
        write: Callable[[WriteRequest], Awaitable[Done]],
    ) -> None:
        self._bucket = bucket
        self._log = log
        self._contents = contents
        self._entropy = entropy
        self._clock = clock
        self._timings = timings
        self._write = write
        self._busy = False
        self._seen: dict[tuple[int, int], float] = {}
        """Ended jobs of the state, by seq and fence, and when this process first saw them ended."""
        self._looked_back = False

    def is_due(self) -> bool:
        replica = self._log.replica
        entries = replica.position - replica.snapshot
        expected = max(replica.snapshot_size, PER_JOB * (len(replica.jobs.jobs) + len(replica.jobs.keys)))
        large = replica.bytes_since >= AMPLIFY * expected
        return not self._busy and entries >= self._timings.snapshot_entries and large

    async def keep(self) -> None:
        """One round: archive, snapshot, clean. A failed round is repeated after the next commit."""
        if self._busy:
            return
        self._busy = True
        try:
            await self._log.trust()
            await self._archive()
            await self._clean(await self._snapshot())
        except Stale:
            pass  # the next read or write joins again
        except Exception as error:  # noqa: BLE001  # nothing depends on this round
            logger.warning(
                "compacting the log of %s failed and will be retried after a later write: %r", self._bucket, error
            )
        finally:
            self._busy = False

    # -- ended jobs

    async def _archive(self) -> None:
        before = await self._ended_long_before()
        replica, now = self._log.replica, self._clock.monotonic()
        ended = {(job.seq, job.fence): job for job in replica.jobs.jobs.values() if job.state in TERMINAL}
        self._seen = {place: self._seen.get(place, now) for place in ended}
        # Not by `finished_at`: the wall clock that set it may be wrong, and so may the one of this process.
        self._seen.update(dict.fromkeys(before & ended.keys(), -math.inf))
        over = [job for place, job in ended.items() if now - self._seen[place] >= self._timings.archive_after]
        segments: list[Segment] = []
        parts = list(_parts(over, self._timings.archive_jobs))
        for at in range(0, len(parts), PARALLEL):
            as_of = replica.position
            # Some may have been reset by now; changes of the others from here on invalidate their part of the segment.
            copies = [
                [copy(record) for record in part if record.state in TERMINAL] for part in parts[at : at + PARALLEL]
            ]
            named = [(f"{self._entropy.token():016x}", part) for part in copies if part]
            segments += await asyncio.gather(
                *(self._contents.write_segment(name, replica, as_of, part) for name, part in named)
            )
        if segments and self._log.replica is replica:
            await self._write(_request(segments=segments))

    async def _ended_long_before(self) -> set[tuple[int, int]]:
        """Jobs that had ended in a snapshot which is old by the bucket's own clock; found once by each process.

        Without this, short-lived processes would never archive anything.
        """
        if self._looked_back:
            return set()
        entries = await self._bucket.list("log/", after=log_key(max(0, self._log.replica.position - 1)))
        before = max((each.modified for each in entries), default=0) - int(self._timings.archive_after * MICROS)
        old = [each.key for each in await self._bucket.list("snapshot/") if each.modified <= before]
        found = await self._log.fetch(old[-1], Snapshot) if old else None
        if found is None:
            return set()
        self._looked_back = True
        return ended_in(found[0])

    # -- snapshots

    async def _snapshot(self) -> int:
        """Write and mark a snapshot; its number."""
        await self._log.trust()
        replica = self._log.replica
        number, data = replica.position, encode(dump(replica))
        await self._log.verify(replica, number + 1)
        await self._bucket.put_surely(snapshot_key(number), data)  # that of another process would be equal
        await self._write(_request(marks=[Mark(number, len(data))]))
        return number

    # -- cleaning

    async def _clean(self, marked: int) -> None:
        """Delete unneeded objects that are older than the marked snapshot of this number."""
        snapshots = await self._bucket.list("snapshot/")
        times = [each.modified for each in snapshots if number_of(each.key) == marked]
        if len(snapshots) < 2 or not times:
            return
        await self._log.trust()
        replica = self._log.replica
        floor, old = number_of(snapshots[-2].key), times[0] - int(self._timings.clean_after * MICROS)
        needed = replica.needed_entries()
        goes = [each.key for each in snapshots[:-2] if each.modified < old]
        goes += [
            each.key
            for each in await self._bucket.list("log/")
            if number_of(each.key) <= floor and each.modified < old and number_of(each.key) not in needed
        ]
        for folder in ("inbox/", "probe/"):
            goes += _older(await self._bucket.list(folder), old)
        goes += _unneeded(await self._bucket.list("done/"), old, {f"done/{name}" for name in replica.archived})
        goes += _unneeded(await self._bucket.list("payload/"), old, replica.needed_objects())
        if self._log.replica is replica and goes:
            await self._bucket.delete(goes)


def _parts(records: list[Record], jobs: int) -> Iterable[list[Record]]:
    """Ended jobs by segment, sorted by id, at most `jobs` each; jobs that are kept for ever have their own segments."""
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


def _request(segments: list[Segment] | None = None, marks: list[Mark] | None = None) -> WriteRequest:
    return WriteRequest(segments=segments or [], marks=marks or [])
