"""What a worker may write about flows over HTTP; no flow may declare many more jobs than were stored for it.

The check whether a flow has ended reads all of its jobs, and blocks other flows: two small requests must not make a
worker look for millions of jobs that do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..core import internal as extra
from ..core.clock import Entropy
from ..core.errors import InvalidJob
from ..core.flow_rules import GROWN, TASK, member
from ..core.job import UNDECODABLE, NewJob, State
from ..core.operations import HANDLED, Change, Patch
from ..store.protocol import Store, records_of
from ..store.worker_writes import RecordKind, RecordWrite, WorkerWrites, any_worker, name_in, resumes
from .creation import AWAITED, ENDED, pending
from .members import PAGE, About, about_flow, counting, number_kept

SAMPLE = 64
"""Jobs of a large flow that are looked up. Half of them must exist: some may have been deleted."""
UPGRADE = "nothing was written. Use the same version of Holdfast in the worker and the server"


async def _cancels_nothing(_store: Store, write: RecordWrite) -> bool:
    """Workers write which ends must be processed; only an operator cancels or deletes a flow."""
    left = pending(write.value)
    return not left.cancel and left.delete is None


async def _check_count(store: Store, write: RecordWrite) -> Sequence[NewJob]:
    """Reject a number of jobs that grows by more than one at a time."""
    if write.value is None:
        return ()
    flow = name_in(write.kind)
    number = number_kept(write.value)
    if number is None:
        raise InvalidJob(f"flow {flow!r:.200}: its number of jobs is not a number; {UPGRADE}")
    [own] = await store.get([flow])
    kept = (await records_of(store, write.kind)).get("jobs")
    known = None if kept is None else number_kept(kept)
    if known is None:
        about = None if own is None else about_flow(own)
        known = 0 if about is None else about.jobs + about.grown
    if number > known + 1:
        raise InvalidJob(
            f"flow {flow!r:.200}: its number of jobs cannot change from {known} to {number}, because a write adds one"
            f" job; {UPGRADE}"
        )
    return ()


async def _check_own_jobs(store: Store, entropy: Entropy, jobs: Sequence[NewJob]) -> None:
    """Reject a flow's own job, which is stored last, if the jobs of the flow are missing."""
    for job in jobs:
        if job.extra is None or extra.decode(job.extra).flow != job.id:
            continue
        try:
            wanted = msgspec.json.decode(job.payload, type=About).jobs
        except UNDECODABLE as error:
            raise InvalidJob(f"flow {job.id!r}: its payload cannot be read: {error}; {UPGRADE}") from None
        if wanted <= PAGE:
            continue
        numbers = [int(entropy.fraction() * wanted) for _ in range(SAMPLE)]
        own, *found = await store.get([job.id, *(member(job.id, number) for number in numbers)])
        if own is None and found.count(None) > SAMPLE // 2:
            raise InvalidJob(
                f"flow {job.id!r} was not started: its payload declares {wanted} jobs, but most of them are not stored;"
                " enqueue it again"
            )


_resumes = resumes("waiting_for")


def _is_workers(change: Change) -> bool:
    """Workers also remove the record of a processed end, and mark a flow that grows."""
    grows = (
        change.expected_state == State.BLOCKED and change.expected_task == TASK and change.patch == Patch(meta=GROWN)
    )
    return grows or change.patch == HANDLED or _resumes(change)


WRITES = WorkerWrites(
    records=(
        RecordKind(ENDED, worker=_cancels_nothing, notifies_end=True),
        RecordKind(AWAITED, worker=any_worker),
        RecordKind(counting(""), worker=any_worker, check=_check_count),
    ),
    change=_is_workers,
    check_inserts=_check_own_jobs,
)
