"""The open transaction of the calling thread: jobs are part of it, or are stored after its commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction

from .configuration import current


class AfterCommit:
    """Stores jobs, once: a test may call it before Django does."""

    def __init__(self, store: Callable[[], object]) -> None:
        self._store: Callable[[], object] | None = store

    def __call__(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store()


class OpenTransaction:
    """The `transaction.atomic()` block around a caller. `bound`: jobs are written with the connection of Django."""

    def __init__(self, alias: str, *, bound: bool) -> None:
        self._alias = alias
        self.connection = connections[alias] if bound else None

    def on_commit(self, store: Callable[[], object]) -> None:
        """Store jobs after the commit of the outermost block."""
        transaction.on_commit(AfterCommit(store), using=self._alias)


def find_transaction() -> OpenTransaction | None:
    """The open transaction of the database that the settings name; None if there is none, and with IMMEDIATE.

    Without autocommit a transaction is always open. Then jobs of a store elsewhere are stored at once: Django has no
    `on_commit` there.
    """
    found = current()
    if found.immediate:
        return None
    connection = connections[found.database]
    if connection.in_atomic_block or (not _commits_itself(connection) and found.in_database):
        return OpenTransaction(found.database, bound=found.in_database)
    return None


def _commits_itself(connection: Any) -> bool:
    return connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit
