"""Writes of a Postgres store on a connection of one's own, whose transaction stays open while others go on."""

from __future__ import annotations

from typing import Any

from holdfast.store.postgres import sql
from holdfast.store.postgres.call import Call
from holdfast.store.protocol import Batch


async def write_on(connection: Any, schema: str, batch: Batch, *, patient: bool = True) -> bool:
    """Make a write there; whether it is answered with a wish to be asked again."""
    call = Call(batch, with_hint=False, patient=patient)
    rows = await connection.fetch(sql.for_schema(sql.WRITE, schema), *call.arguments)
    *_, again = call.answers(rows)
    return again
