"""Flows that come through the store API: none may claim many more jobs than were stored for it.

Whoever looks whether a flow has ended looks at all of its jobs, and meanwhile at no other flow: two small messages must
not have a worker look for millions of jobs that there are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ..core import internal as extra
from ..core.errors import InvalidJob
from ..core.flow_rules import member
from ..core.job import UNDECODABLE, NewJob
from ..flows.creation import TASK
from ..flows.members import PAGE, About, about_flow, counting, number_kept

if TYPE_CHECKING:
    from ..client.session import Session

SAMPLE = 64
"""Jobs of a large flow that are looked for. Half of them must be there: some may have been deleted."""


async def check_flows(session: Session, jobs: Sequence[NewJob]) -> None:
    """Refuse a flow's own job, which is stored last, where the jobs of the flow are not there."""
    for job in jobs:
        if job.extra is None or extra.decode(job.extra).flow != job.id:
            continue
        try:
            wanted = msgspec.json.decode(job.payload, type=About).jobs
        except UNDECODABLE as error:
            raise InvalidJob(f"flow {job.id!r}: its payload cannot be read: {error}") from None
        if wanted <= PAGE:
            continue
        numbers = [int(session.entropy.fraction() * wanted) for _ in range(SAMPLE)]
        own, *found = await session.store.get([job.id, *(member(job.id, number) for number in numbers)])
        if own is None and found.count(None) > SAMPLE // 2:
            raise InvalidJob(f"flow {job.id!r}: it says that it has {wanted} jobs, and most of them are not stored")


async def check_count(session: Session, kind: str, value: bytes) -> None:
    """Refuse a number of jobs of a flow that has grown by more than one at a time."""
    flow = kind.removeprefix(f"{TASK}:")
    number = number_kept(value)
    if number is None:
        raise InvalidJob(f"flow {flow!r:.200}: this is no number of jobs")
    [own] = await session.store.get([flow])
    kept = (await session.store.records(counting(flow))).get("jobs")
    known = None if kept is None else number_kept(kept)
    if known is None:
        about = None if own is None else about_flow(own)
        known = 0 if about is None else about.jobs + about.grown
    if number > known + 1:
        raise InvalidJob(f"flow {flow!r:.200}: it has {known} jobs, and cannot have {number} next")
