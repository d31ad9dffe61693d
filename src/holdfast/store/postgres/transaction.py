"""Transactional completion: a task's own writes and the end of its job in one transaction, under its fence."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ...core.errors import HoldfastError, LeaseLost
from ...core.operations import Note, Settlement
from ..protocol import Batch
from . import sql, trouble
from .address import Address
from .call import Call
from .pool import Pool

SIZE = 20
"""Connections that tasks may use at once for their transactions; made on demand."""


class Transactions:
    """The connections for tasks, separate from the store's own, so that a slow task does not delay a claim."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pool = Pool(address, SIZE, " for tasks' own transactions")

    @asynccontextmanager
    async def begin(
        self, end: Callable[[], Settlement], notes: Callable[[], Sequence[Note]]
    ) -> AsyncGenerator[Any, None]:
        """A connection inside a transaction. At the end of the block, it commits with `notes()` and last `end()`.

        The job's row is locked only between that write and the COMMIT, so heartbeats, notes and sweeps never wait for
        a slow task. Raises LeaseLost, and rolls back, if the claim has already ended.
        """
        async with self._pool.link() as link, link.raw.transaction():
            yield link.raw
            settlement = end()
            call = Call(Batch(notes=notes(), settles=[settlement]), with_hint=False)
            rows = await link.raw.fetch(sql.for_schema(sql.WRITE, self._address.schema), *call.arguments)
            if not call.answers(rows)[0].settles[0]:
                raise LeaseLost(settlement.id, settlement.fence)

    def explain(self, error: Exception) -> HoldfastError | None:
        """The error for a failure of the connection; None for an error of the task's own statements."""
        return trouble.writing(error, self._address.shown)

    async def close(self) -> None:
        await self._pool.close()

    def release(self) -> None:
        self._pool.release()

    def forget(self) -> None:
        self._pool.forget()
