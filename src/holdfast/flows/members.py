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

MAX_FLOW_JOBS = 10_000_000
"""Maximum jobs of one flow. A larger stored number is damaged: looking for its jobs would take for ever."""
Jobs = Annotated[int, msgspec.Meta(ge=0, le=MAX_FLOW_JOBS)]


class About(msgspec.Struct, omit_defaults=True):
    """The payload of a flow's own job."""

    name: str
    jobs: Jobs
    """Its jobs at the start."""
    grown: Jobs = 0
    """Jobs that were added while it ran, set at its end."""
    digest: str = ""
    """Distinguishes it from another flow with the same id."""
    chosen: bool = False
    """The caller chose its id, and may reuse it after this flow is deleted."""
    abandoned: bool = False
    """It was abandoned before it was started (`creation.py`): set by the insert of its own job, and never changed."""
    ended: FlowEnd | None = None
    """How it ended last."""


UNKNOWN = About("", 0)
"""The payload of a damaged flow: only an operator ends or removes it."""


class FlowJobs:
    """Reads and changes the jobs of flows, page by page."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def count(self, own: Record) -> int:
        kept = (await records_of(self._session.store, counting(own.id))).get("jobs")
        if kept is not None and (number := number_kept(kept)) is not None:
            return number
        about = about_flow(own)
        return about.jobs + about.grown

    async def members(self, id: str, jobs: int) -> AsyncIterator[Record]:
        """The stored jobs among the first `jobs` numbers, in order."""
        for start in range(0, jobs, PAGE):
            numbers = range(start, min(jobs, start + PAGE))
            for record in await self._session.store.get([member(id, number) for number in numbers]):
                if record is not None:
                    yield record

    async def own(self, id: str) -> Record:
        record = await self._session.record(id)
        if not extras.is_flow(record):
            raise InvalidJob(f"job {id} is not a flow; use the id of a flow, as `holdfast flow list` shows it")
        return record

    async def get(self, ids: Iterable[str]) -> list[Record]:
        """The existing ones of some jobs."""
        wanted, found = sorted(ids), list[Record]()
        for start in range(0, len(wanted), PAGE):
            found += [r for r in await self._session.store.get(wanted[start : start + PAGE]) if r is not None]
        return found

    async def change(self, changes: Sequence[Change]) -> Sequence[bool]:
        """Write changes; returns which of them were made."""
        written: list[bool] = []
        for start in range(0, len(changes), PAGE):
            written += await self._session.commit.change(changes[start : start + PAGE])
        return written


def about_flow(own: Record) -> About:
    """The payload of a flow's own job; UNKNOWN if it cannot be decoded."""
    try:
        return msgspec.json.decode(own.payload, type=About)
    except UNDECODABLE:
        return UNKNOWN


_decode_number = msgspec.json.Decoder(Jobs).decode


def number_kept(kept: Versioned | bytes) -> int | None:
    """The number of a flow's jobs in a record; None if it cannot be decoded."""
    try:
        return _decode_number(kept.value if isinstance(kept, Versioned) else kept)
    except UNDECODABLE:
        return None


def gathering(flow: str) -> bytes | None:
    """The internal metadata of a flow's own job."""
    return extras.write(Internal(flow=flow, allow_unfinished=0))


def counting(flow: str) -> str:
    """The kind of record that counts the jobs of a flow that has grown."""
    return kind_in("flow", flow)
