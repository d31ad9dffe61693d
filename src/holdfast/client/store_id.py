"""The id of a store: random, kept in the store, the same for all its users, whatever URL they use.

Signatures are bound to it, so that signed data copied to another store is invalid there. A backup contains it, so
signatures stay valid after a restore; so does a copy of a whole store.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

import msgspec

from ..core.clock import fresh_secret
from ..core.errors import ConfigError, OutcomeUnknown
from ..store.protocol import Store, records_of
from ..store.worker_writes import RecordKind, RecordWrite, WorkerWrites

KIND, NAME = "store", "id"


async def store_id(store: Store) -> str:
    """The id, made on first use."""
    while (known := await known_store_id(store)) is None:
        with suppress(OutcomeUnknown):  # the next read shows it
            await store.put_record(KIND, NAME, msgspec.json.encode(fresh_secret()), 0)  # unless another was first
    return known


async def known_store_id(store: Store) -> str | None:
    """The id, if it was made."""
    kept = (await records_of(store, KIND)).get(NAME)
    return None if kept is None else kept.value.hex()  # any bytes: a damaged record is an id as well


async def _refuse(_store: Store, _write: RecordWrite) -> NoReturn:
    raise ConfigError("the store's id was not changed: signatures depend on it, so it cannot be set over HTTP")


WRITES = WorkerWrites(records=(RecordKind(KIND, check=_refuse, before_read=store_id),))
"""A server creates it on the first read, so no client does."""
