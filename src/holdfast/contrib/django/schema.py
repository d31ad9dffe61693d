"""The tables of the store, created and updated by `manage.py migrate`."""

from __future__ import annotations

import asyncio
from typing import Any

from django.db.migrations.operations.base import Operation

from ...core.clock import SystemClock
from ...store.open import open_store
from ...store.protocol import Migrating
from .configuration import current


def missing(alias: str) -> list[int]:
    """The versions of the schema that the store lacks, if migrations of this database create it."""
    store = _store(alias)
    return [] if store is None else asyncio.run(store.missing())


def migrate(alias: str) -> list[int]:
    """Bring the schema up to date, if migrations of this database create it; returns the applied versions."""
    store = _store(alias)
    return [] if store is None else asyncio.run(_migrate(store))


def _store(alias: str) -> Any:
    """The store that is migrated with this database: with its own connections, and as `holdfast migrate` does."""
    found = current()
    if found.database != alias:
        return None
    store = open_store(found.find_url(), SystemClock())
    return store if isinstance(store, Migrating) else None


async def _migrate(store: Any) -> list[int]:
    try:
        return await store.migrate() if await store.missing() else []
    finally:
        await store.close()


class MigrateStore(Operation):
    """Brings the schema of the store up to date. Cannot be part of a transaction: the store has its own connection."""

    reduces_to_sql = False
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No Django model changes."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002  # Django's signature
        """Apply what is missing."""
        migrate(schema_editor.connection.alias)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Keeps the tables: they contain jobs."""

    def describe(self) -> str:
        """For `migrate --plan`."""
        return "Create or update the tables of Holdfast"
