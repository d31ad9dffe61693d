"""Database connections of Django: fresh ones for each job, and none that makes checkpoints in the file of the store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asgiref.sync import SyncToAsync
from django.db import connections

from ...core.url import split
from .configuration import current
from .current_app import made_app

if TYPE_CHECKING:
    from ...tasks.task import Task  # which most commands of `manage.py` do not need


_async_calls: set[object] = set()
"""The async calls in progress: they share the connections of one thread."""


@contextmanager
def around_call(task: Task[..., Any]) -> Generator[None]:
    """Before and after each call: close connections that are broken or too old, in the thread that uses them."""
    call, calls, clean_up = object(), set[object](), _clean_up
    if task.is_async:
        calls, clean_up = _async_calls, _clean_up_later
    clean_up()
    calls.add(call)
    try:
        yield
    finally:
        calls.remove(call)
        clean_up()


def _clean_up(*, shared: bool = False) -> None:
    """`shared`: other calls may be reading from the connections, so only broken ones are closed."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            close_at = connection.close_at
            if shared:
                connection.close_at = None
            connection.close_if_unusable_or_obsolete()
            connection.close_at = close_at
            # The next job's first query checks the connection, so that one which the server closed costs no attempt.
            connection.health_check_enabled = True


def _clean_up_later() -> None:
    """In the thread in which `sync_to_async` makes the queries of async tasks, after those that wait there."""
    SyncToAsync.single_thread_executor.submit(partial(_clean_up, shared=bool(_async_calls)))


def store_file() -> Path | None:
    """The file of a SQLite store."""
    found = current()
    if found.immediate or (found.url is None and connections[found.database].vendor != "sqlite"):
        return None
    url = split(found.find_url())
    return Path(url.path[1:]).resolve() if url.scheme == "sqlite" else None


def leave_checkpoints(connection: Any, **_: object) -> None:
    """A receiver of `connection_created`: only Holdfast makes checkpoints in the file of its store.

    Checkpoints of other connections would void its protection from SQLite's WAL-reset bug.
    """
    if connection.vendor != "sqlite" or connection.is_in_memory_db():
        return
    file = store_file()
    if file is not None and Path(connection.settings_dict["NAME"]).resolve() == file:
        connection.connection.execute("PRAGMA wal_autocheckpoint = 0")


def close_before_drop(connection: Any, **_: object) -> None:
    """A receiver of `connection_created`: before a test database is cloned or dropped, connections to it are closed.

    So a clone of a SQLite file is whole: the last connection that is closed empties the write-ahead log into the file.
    """
    creation = connection.creation
    if connection.alias != current().database or "destroy_test_db" in vars(creation):
        return

    def closing(work: Callable[..., Any]) -> Callable[..., Any]:
        def close_and_work(*args: Any, **kwargs: Any) -> Any:
            if (app := made_app()) is not None:
                app.sync.close()
            connection.close()
            return work(*args, **kwargs)

        return close_and_work

    for name in ("clone_test_db", "destroy_test_db"):
        vars(creation)[name] = closing(getattr(creation, name))
