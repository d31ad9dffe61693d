"""Tests of Django projects: jobs run when the test says so, in the thread of the test."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from ...app import Holdfast, parts_of
from ...core.errors import ConfigError
from ...testing import Bench, on_memory
from .configuration import current
from .immediate import in_callers_thread
from .process_app import get_app
from .transactions import AfterCommit, OpenTransaction, find_transaction


@contextmanager
def bench() -> Generator[Bench]:
    """While the block runs, the app has an empty memory store and a manual clock; `work()` runs what is due.

    Tasks run in the thread of the test, and see its transaction. In a `TestCase`, jobs are stored when the outermost
    `atomic()` block of the code under test ends, unless it rolls back.
    """
    app = get_app()
    if current().immediate:
        raise ConfigError(
            "bench() cannot be used while HOLDFAST['IMMEDIATE'] runs jobs during the enqueue: switch it off with"
            " @override_settings(HOLDFAST={})"
        )
    with on_memory(app) as made, in_callers_thread(app), _observed(app):
        yield made


@contextmanager
def _observed(app: Holdfast) -> Generator[None]:
    """Store jobs in the end of the transactions that the test itself has not opened."""
    enqueue, connection = parts_of(app).enqueue, connections[current().database]
    commit = connection.savepoint_commit

    def commit_and_store(sid: str) -> None:
        commit(sid)
        if not _own_blocks(connection):
            for _, callback, _ in list(connection.run_on_commit):
                if isinstance(callback, AfterCommit):
                    callback()

    def find() -> OpenTransaction | None:
        return (
            OpenTransaction(current().database, bound=False) if _own_blocks(connections[current().database]) else None
        )

    vars(connection)["savepoint_commit"] = commit_and_store
    enqueue.find_transaction = find
    try:
        yield
    finally:
        enqueue.find_transaction = find_transaction
        del vars(connection)["savepoint_commit"]


def _own_blocks(connection: Any) -> list[Any]:
    """The open `atomic()` blocks whose end is seen: in a `TestCase`, those of the code under test with a savepoint."""
    blocks = connection.atomic_blocks
    own = [block for block in blocks if not block._from_testcase]  # noqa: SLF001  # Django has no other name for it
    return own if len(own) == len(blocks) else [block for block in own if block.savepoint]
