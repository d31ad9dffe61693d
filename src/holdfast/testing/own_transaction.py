"""A memory store that accepts `connection=`: it stores the job when the transaction of the test commits."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from ..core.job import NewJob
from ..core.operations import Inserted
from ..store.protocol import Batch
from ..store.reference.memory import MemoryStore
from ..store.user_connection import begins_transactions, kind_of

logger = logging.getLogger("holdfast")


class Transaction:
    """A transaction of the test: the jobs to store when it commits, and how many each savepoint began with."""

    def __init__(self, connection: Any, store: Callable[[NewJob], None]) -> None:
        self.connection = connection
        self._store = store
        self._savepoints: dict[Any, int] = {}
        self.jobs: list[NewJob] = []
        self.over = False

    def savepoint(self, name: Any) -> None:
        self._savepoints[name] = len(self.jobs)

    def roll_back_to(self, name: Any) -> None:
        """Discard the jobs since a savepoint; all, if it is older than the first of them."""
        del self.jobs[self._savepoints.get(name, 0) :]

    def saw(self, statement: str) -> str:
        """Observe the savepoints of SQL statements; returns the first word of another statement."""
        words = [word for word in statement[:200].upper().rstrip("; \n").split() if word != "TRANSACTION"] or [""]
        if words[0] == "SAVEPOINT":
            self.savepoint(words[-1])
        elif words[:2] == ["ROLLBACK", "TO"]:
            self.roll_back_to(words[-1])
        else:
            return words[0]
        return ""

    def end(self, *, commits: bool) -> None:
        if not self.over:  # else it is another transaction
            self.over = True
            for job in self.jobs if commits else ():
                self._store(job)


class BoundMemoryStore(MemoryStore):
    """Observes transactions of `sqlite3` and SQLAlchemy; with other connections, jobs are stored at once.

    A COMMIT of `sqlite3`, or of a connection of SQLAlchemy, is observed before it runs: one that fails stores the jobs.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bound: dict[int, Transaction] = {}
        """By the ids of their connections."""

    def sibling(self) -> BoundMemoryStore:
        sibling = BoundMemoryStore(_data=self._data)
        sibling._bound = self._bound
        return sibling

    async def check_bound(self, connection: Any) -> None:
        """Every connection is accepted."""

    async def insert_bound(self, connection: Any, jobs: Sequence[NewJob]) -> list[Inserted]:
        return [self._insert(job) if self._known(job) else self._insert_later(connection, job) for job in jobs]

    def _known(self, job: NewJob) -> bool:
        """Whether another job has its id or its key."""
        known = self._data.jobs
        with self._data.lock:
            return job.id in known.jobs or (job.key is not None and known.key_owner(job.key) is not None)

    def _insert_later(self, connection: Any, job: NewJob) -> Inserted:
        """Insert when the transaction commits, if there is one that can be observed."""
        transaction = self._bound.get(id(connection))
        if transaction is None or transaction.over:
            transaction = Transaction(connection, self._insert_committed)
            if not _observe(connection, transaction):
                return self._insert(job)
            self._bound[id(connection)] = transaction
        if (refused := self._refused(job, transaction.jobs)) is not None:
            return refused
        transaction.jobs.append(job)
        return Inserted("created", job.id)

    def _refused(self, job: NewJob, earlier: Sequence[NewJob]) -> Inserted | None:
        """The answer to a job that the earlier ones of its transaction prevent."""
        for other in earlier:
            if job.key is not None and other.key == job.key:
                return Inserted("existing" if other.fingerprint == job.fingerprint else "conflict", other.id)
            if other.id == job.id:
                return Inserted("exists", job.id)
        with self._data.lock:
            depth = self._data.jobs.ready_queues.depth(job.queue) + sum(other.queue == job.queue for other in earlier)
        return None if job.max_depth is None or depth < job.max_depth else Inserted("full", job.id)

    def _insert_committed(self, job: NewJob) -> None:
        answer = self._insert(job)
        if answer.outcome != "created":
            logger.error(
                "job %s of task %s was not stored when its transaction committed: %s", job.id, job.task, answer.outcome
            )

    def _insert(self, job: NewJob) -> Inserted:
        with self._data.lock:
            [answer] = self._data.write(Batch([job])).inserts
            listeners = self._data.notified()
        for listener in listeners:
            listener.notify()
        return answer


def _observe(connection: Any, transaction: Transaction) -> bool:
    """Observe the transaction of a connection; False if it has none, or of an unknown kind."""
    if isinstance(connection, sqlite3.Connection):
        return _observe_sqlite(connection, transaction)
    kind = kind_of(connection)
    return kind is not None and kind.library == "sqlalchemy" and _observe_sqlalchemy(connection, transaction)


def _observe_sqlite(connection: sqlite3.Connection, transaction: Transaction) -> bool:
    if begins_transactions(connection) and not connection.in_transaction:
        connection.execute("BEGIN")  # as the SQLite store does
    if not connection.in_transaction:
        return False

    def saw(statement: str) -> None:
        end = transaction.saw(statement)
        if end in ("COMMIT", "END", "ROLLBACK"):
            connection.set_trace_callback(None)
            transaction.end(commits=end != "ROLLBACK")

    connection.set_trace_callback(saw)
    return True


def _observe_sqlalchemy(connection: Any, transaction: Transaction) -> bool:
    from sqlalchemy import event
    from sqlalchemy.orm import Session

    if callable(registry := getattr(connection, "registry", None)):  # a scoped session
        connection = registry()
    target = getattr(connection, "sync_session", None) or getattr(connection, "sync_connection", None) or connection
    listeners = _of_session(transaction) if isinstance(target, Session) else _of_connection(transaction)
    for name, listener in listeners.items():
        event.listen(target, name, listener)
    return True


def _of_connection(transaction: Transaction) -> dict[str, Callable[..., None]]:
    """Listeners for a connection, whose savepoints are statements."""

    def executes(_: Any, __: Any, statement: str, *___: Any) -> None:
        transaction.saw(statement)

    def commits(_: Any) -> None:
        transaction.end(commits=True)

    def rolls_back(_: Any) -> None:
        transaction.end(commits=False)

    return {"before_cursor_execute": executes, "commit": commits, "rollback": rolls_back}


def _of_session(transaction: Transaction) -> dict[str, Callable[..., None]]:
    """Listeners for a session, whose events occur for savepoints too."""

    def created(_: Any, inner: Any) -> None:
        if inner.nested:
            transaction.savepoint(inner)

    def committed(session: Any) -> None:
        if not session.in_nested_transaction():
            transaction.end(commits=True)

    def rolled_back(session: Any) -> None:
        if session.in_nested_transaction():
            transaction.roll_back_to(session.get_nested_transaction())
        else:
            transaction.end(commits=False)

    return {"after_transaction_create": created, "after_commit": committed, "after_rollback": rolled_back}
