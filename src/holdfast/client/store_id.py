"""The store's own id: random, kept in the store, the same for all who use it, by whatever URL they reach it.

What is signed is bound to it, so that a copy in another store is worth nothing there. A backup has it, so what was
signed before still holds after a restore; so does a copy of a whole store.
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
    """The id, made by the first who asks."""
    while (kept := (await records_of(store, KIND)).get(NAME)) is None:
        with suppress(OutcomeUnknown):  # the next look tells
            await store.put_record(KIND, NAME, msgspec.json.encode(fresh_secret()), 0)  # unless somebody was first
    return kept.value.hex()  # whatever it is: a record that was damaged is an id as well


async def _refuse(_store: Store, _write: RecordWrite) -> NoReturn:
    raise ConfigError("the store's id cannot be set over HTTP: signatures are bound to it")


WRITES = WorkerWrites(records=(RecordKind(KIND, check=_refuse, before_read=store_id),))
"""Once somebody reads it through a server, there is one, so no client makes it."""
