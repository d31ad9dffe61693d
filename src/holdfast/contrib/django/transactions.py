"""The open transaction of the calling thread: jobs are part of it, or are stored after its commit."""

from __future__ import annotations

from collections.abc import Callable

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
    """The open transaction of the database that the settings name; None outside of `atomic()`, and with IMMEDIATE."""
    found = current()
    if found.immediate or not connections[found.database].in_atomic_block:
        return None
    return OpenTransaction(found.database, bound=found.in_database)
