"""The jobs of one flow in a store: its own job, how many there are, each by its number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Annotated

import msgspec

from ..client.session import Session
from ..core import internal as extras
from ..core.errors import InvalidJob
from ..core.flow_rules import FlowEnd, member
from ..core.internal import Internal
from ..core.job import UNDECODABLE, Record
from ..core.operations import Change
from ..store.group_commit import PAGE
from ..store.protocol import Versioned, records_of
from ..store.worker_writes import kind_in

TASK, QUEUE = "flow", "flows"
JOBS_MOST = 10_000_000
"""Jobs of one flow. A stored number beyond it is damaged: whoever believed it would look for its jobs for ever."""
Jobs = Annotated[int, msgspec.Meta(ge=0, le=JOBS_MOST)]


class About(msgspec.Struct, omit_defaults=True):
    """What a flow's own job has as its payload."""

    name: str
    jobs: Jobs
    """Those that it began with."""
    grown: Jobs = 0
    """Those that were added while it ran, once it has ended."""
    digest: str = ""
    """What tells it apart from another flow with the same id."""
    chosen: bool = False
    """Its id is its caller's, who may enqueue another flow with it once this one is deleted."""
    abandoned: bool = False
    """It was given up before it was started (`creation.py`): said by the insert of its own job, and never changed."""
    ended: FlowEnd | None = None
    """How it ended last."""


UNKNOWN = About("", 0)
"""Stands for what a damaged flow says of itself: nobody ends or removes it but an operator."""


class FlowJobs:
    """Reads and changes the jobs of flows, page by page."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def count(self, own: Record) -> int:
        """How many jobs a flow has."""
        kept = (await records_of(self._session.store, counting(own.id))).get("jobs")
        if kept is not None and (number := number_kept(kept)) is not None:
            return number
        about = about_flow(own)
        return about.jobs + about.grown

    async def members(self, id: str, jobs: int) -> AsyncIterator[Record]:
        """Those of the first so many numbers that are kept, in order."""
        for start in range(0, jobs, PAGE):
            numbers = range(start, min(jobs, start + PAGE))
            for record in await self._session.store.get([member(id, number) for number in numbers]):
                if record is not None:
                    yield record

    async def own(self, id: str) -> Record:
        """The flow's own job."""
        record = await self._session.record(id)
        if not extras.is_flow(record):
            raise InvalidJob(f"job {id} is not a flow")
        return record

    async def get(self, ids: Iterable[str]) -> list[Record]:
        """Those of some jobs that there are."""
        wanted, found = sorted(ids), list[Record]()
        for start in range(0, len(wanted), PAGE):
            found += [r for r in await self._session.store.get(wanted[start : start + PAGE]) if r is not None]
        return found

    async def change(self, changes: Sequence[Change]) -> Sequence[bool]:
        """Write changes; which of them were made."""
        written: list[bool] = []
        for start in range(0, len(changes), PAGE):
            written += await self._session.commit.change(changes[start : start + PAGE])
        return written


def about_flow(own: Record) -> About:
    """What a flow's own job says of it; UNKNOWN where that cannot be decoded."""
    try:
        return msgspec.json.decode(own.payload, type=About)
    except UNDECODABLE:
        return UNKNOWN


_decode_number = msgspec.json.Decoder(Jobs).decode


def number_kept(kept: Versioned | bytes) -> int | None:
    """The number of a flow's jobs that a record holds; None where it cannot be decoded."""
    try:
        return _decode_number(kept.value if isinstance(kept, Versioned) else kept)
    except UNDECODABLE:
        return None


def gathering(flow: str) -> bytes | None:
    """What a flow's own job has to know."""
    return extras.write(Internal(flow=flow, allow_unfinished=0))


def counting(flow: str) -> str:
    """The kind of record that counts the jobs of a flow that has grown."""
    return kind_in("flow", flow)
