"""Batch collection: claims more jobs for one call of a batch task until the batch is full or its time is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.errors import HoldfastError
from ..core.job import Record
from ..core.operations import Ask
from .lease import Leases
from .run import Batch

if TYPE_CHECKING:
    from ..client.session import Session
    from ..tasks.task import Task

logger = logging.getLogger("holdfast")


class Batches:
    """The open batches of a worker, one per task and queue.

    A batch takes one slot. Its first job comes from an ordinary claim. More jobs are claimed until it is full or its
    time is over; jobs of ordinary claims join it too. A quarantined job always has its own batch.
    """

    def __init__(
        self,
        session: Session,
        leases: Leases,
        call: Callable[[Task[..., Any], list[Any], Callable[[int | None], object]], Awaitable[Any]],
        begin: Callable[[Record, Batch | None], None],
        *,
        poll: float,
    ) -> None:
        self._session = session
        self._leases = leases
        self._call = call
        self._begin = begin
        self._poll = poll
        self._open: dict[tuple[str, str], Batch] = {}
        self._gathering: dict[asyncio.Task[None], Batch] = {}

    def place(self, record: Record, task: Task[..., Any]) -> Batch:
        """The batch for a claimed job: the open one, or a new one."""
        key = (task.name, record.queue)
        batch = None if record.quarantined else self._open.get(key)
        if batch is not None and batch.room:
            return batch
        batch = Batch(task, partial(self._call, task))
        if record.quarantined:
            batch.close()
        else:
            self._open[key] = batch
            gathering = asyncio.create_task(self._gather(batch, record.queue))
            self._gathering[gathering] = batch
            gathering.add_done_callback(lambda done: self._gathered(done, key))
        return batch

    def stop(self) -> None:
        """Release the jobs of batches whose call has not begun."""
        for gathering, batch in self._gathering.items():
            gathering.cancel()
            for run in batch.runs:
                run.stop("release")

    def _gathered(self, done: asyncio.Task[None], key: tuple[str, str]) -> None:
        batch = self._gathering.pop(done)
        if self._open.get(key) is batch:
            del self._open[key]
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error(
                "claiming more jobs for a batch of task %r failed; the batch runs with the jobs that it has",
                batch.task.name,
                exc_info=error,
            )
        if not done.cancelled():
            batch.close()

    async def _gather(self, batch: Batch, queue: str) -> None:
        assert batch.task.batch is not None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + batch.task.batch.wait
        listener = self._session.store.listen([f"queue/{queue}"])
        try:
            while batch.runs and batch.room:
                due_in = await self._claim(batch, queue)
                left = deadline - loop.time()
                if left <= 0:
                    return
                if due_in is not None:
                    await listener.wait(min(left, due_in, self._poll))
        finally:
            listener.close()

    async def _claim(self, batch: Batch, queue: str) -> float | None:
        """Claim as many jobs as fit; if there were none, returns the seconds until the next try, else None."""
        # As a busy worker, since quarantined jobs run alone.
        ask = Ask(self._leases.holder, (queue,), batch.room, self._session.entropy.token(), (batch.task.name,), True)
        try:
            # An ordinary claim may have filled it meanwhile: the remaining jobs begin the next batch.
            claims = await self._leases.claim(ask, lambda one: self._begin(one, batch if batch.room else None))
        except HoldfastError as error:
            return self._session.outages.failed("claiming jobs", error, self._poll)
        self._session.outages.worked("claiming jobs")
        if claims.records:
            return None
        return self._poll if claims.due_in is None else claims.due_in + 0.001
