"""The connection for writes, mostly on its own thread: runs every transaction and the checkpoints."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

from ...core.clock import Clock
from ...core.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreLost, StoreUnavailable
from . import connection as connections
from . import fork, place, schema, sql, trouble, version
from .files import Files
from .fork import ForkLock
from .lock import FileLock
from .step import Mismatch, Step
from .thread import Ticket

T = TypeVar("T")

WAL_EVERY = 8
"""Commits between two checks of the size of the write-ahead log."""
SHORTEST_WAL_PAUSE, LONGEST_WAL_PAUSE = 0.005, 0.16
"""Seconds for which a checkpoint waits for readers of the log, after one that could not reset it."""


class Writer:
    """The operations of the writing thread. All methods except `forget` and `write_here` run there.

    1. Opens the file under the lock file, and brings its schema up to date.
    2. Runs each write as one transaction under the lock file; an error says whether it was written.
    3. Copies the write-ahead log into the database when it is long, while no process can write.
    4. `begin` and `finish` are the two ends of a transaction whose statements a task runs in between.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        busy_timeout: float,
        synchronous: str,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self.path = path = files.path
        self.files = files
        self.lock: FileLock | None = None
        self.applied: list[int] = []
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._wait = sql.WAIT.format(milliseconds=round(busy_timeout * 1000))
        self._synchronous = synchronous
        self._factory = factory
        self.lent = False
        """Whether a task uses the connection: no other thread may use or close it then."""
        self._connection: sqlite3.Connection | None = None
        self._checkpointer: sqlite3.Connection | None = None
        self._countdown = WAL_EVERY
        self._wal = Path(path + "-wal")
        self._wal_limit = connections.WAL_LIMIT
        self._pause = 0.0
        self.fork_lock = ForkLock(self._close_for_fork)

    def open(self, ticket: Ticket[None]) -> None:
        version.check()
        try:
            place.check(self.path)
        except OSError as error:
            raise StoreUnavailable(
                f"file {self.path} cannot be examined: {error.strerror}; nothing was written. Check its permissions and"
                " disk"
            ) from error
        self._clock.boot()  # raises if this process has no boot clock, and so could not measure a lease
        lock = FileLock(self.path + "-lock")
        try:
            with lock:
                ticket.begin()
                place.make_private(self.path)
                connection = self._connect()
                self.applied = schema.migrate(connection, self.path, self._clock.now())
        except BaseException as error:
            self._close_connections()
            lock.close()
            self._explain(error)
            raise
        self.lock = lock

    def close(self, _: object = None) -> None:
        """Close under the lock: the last connection copies the log into the database."""
        if self.lock is not None:
            with self.lock:
                self._close_connections()
            self.lock.close()
            self.lock = None

    def _close_connections(self) -> None:
        self.files.close(self._checkpointer)
        self._checkpointer = None
        if not self.lent:
            self.files.close(self._connection)
            self._connection = None

    def forget(self) -> None:
        """In a forked child: never close the parent's connections; before the fork all were closed."""
        connections.forget(self._connection, self._checkpointer)
        self._connection = self._checkpointer = self.lock = None

    def _close_for_fork(self) -> None:
        """Close the connections before a fork."""
        if not self.lent:
            self.close_connections()

    def close_connections(self) -> None:
        if self.lock is not None and self._connection is not None:
            with self.lock:
                self._close_connections()

    def _open_connection(self) -> tuple[sqlite3.Connection, FileLock]:
        if self.lock is None:
            raise StoreUnavailable.not_open(self.path)
        if self._connection is None:
            with self.lock:
                self._reconnect()
        assert self._connection is not None
        return self._connection, self.lock

    def look(self, work: Callable[[Step], T]) -> T:
        """Read in one snapshot, without any lock that a writer waits for."""
        connection, _ = self._open_connection()
        self.files.check()
        try:
            connection.execute(sql.BEGIN_READ)
            try:
                return work(Step(connection, self._clock))
            finally:
                connections.roll_back(connection)
        except sqlite3.Error as error:
            if connections.read_leniently(connection, error):
                return self.look(work)
            self._explain(error)
            raise

    def write(self, work: Callable[[Step], T], ticket: Ticket[Any]) -> tuple[T, set[str]]:
        """Run `work` in one transaction; its answer, and the topics to notify."""
        connection, lock = self._open_connection()
        lock.acquire()
        try:
            ticket.begin()
            return self._write(connection, work)
        finally:
            lock.release()

    def write_here(self, work: Callable[[Step], T]) -> tuple[T, set[str]] | None:
        """As `write`, on any thread; None if it would have to wait or to reconnect. Any statement may raise."""
        connection, lock = self._connection, self.lock
        if connection is None or lock is None:
            return None
        try:
            if not lock.acquire_at_once() or not self._begin_at_once(connection):
                return None
            return self._write(connection, work, begun=True)
        except BaseException:
            if connection is self._connection:
                with suppress(sqlite3.Error, HoldfastError):  # the first error says what happened
                    self._roll_back(connection)
                    connection.execute(self._wait)
            raise
        finally:
            fcntl.flock(lock.file, fcntl.LOCK_UN)  # not `lock.release()`, which an exception could prevent

    def _begin_at_once(self, connection: sqlite3.Connection) -> bool:
        """Begin a transaction if no connection has SQLite's write lock: no signal could interrupt a wait for it."""
        connection.execute(sql.NO_WAIT)
        try:
            connection.execute(sql.BEGIN_WRITE)
        except sqlite3.Error:
            return False
        finally:
            connection.execute(self._wait)
        return True

    def _write(
        self, connection: sqlite3.Connection, work: Callable[[Step], T], *, begun: bool = False
    ) -> tuple[T, set[str]]:
        """`write`, with the lock file; `begun`: also with a transaction."""
        self.files.check()
        done = self._transact(connection, work, begun=begun)
        self._confirm()
        return done

    def _confirm(self) -> None:
        """Raise OutcomeUnknown if a commit may have gone to files that were deleted or replaced."""
        try:
            self.files.check_all()
        except StoreLost as error:
            raise OutcomeUnknown(
                f"{error.what}; the last write went to the old file, and is lost unless that file is restored. Stop"
                " every program that uses this store before you restore it"
            ) from error
        except StoreUnavailable as error:
            raise OutcomeUnknown(
                f"{self.path}: the last write may be lost. SQLite committed it, but the file or its log could not be"
                f" examined afterwards ({error.__cause__}), and may have been replaced. Correct this error, then check"
                " whether the store has the write"
            ) from error

    def _transact(
        self, connection: sqlite3.Connection, work: Callable[[Step], T], *, begun: bool = False
    ) -> tuple[T, set[str]]:
        execute = connection.execute
        try:
            if not begun:
                execute(sql.BEGIN_WRITE)
            try:
                step = Step(connection, self._clock)
                answer = work(step)
            except Mismatch:
                execute(sql.ROLLBACK)
                execute(sql.BEGIN_WRITE)
                step = Step(connection, self._clock, bulk=False)
                answer = work(step)
        except BaseException as error:
            self._roll_back(connection)
            if connection is self._connection and connections.read_leniently(connection, error):
                return self._transact(connection, work)
            self._explain(error)
            raise
        self._commit(connection)
        return answer, step.notified

    def begin(self, ticket: Ticket[Any]) -> sqlite3.Connection:
        """Begin a transaction for a task; the lock file is held only until SQLite's own write lock is taken.

        A checkpoint needs that lock too, so none can race the task's writes.
        """
        connection, lock = self._open_connection()
        with lock:
            ticket.begin()
            self.files.check()
            try:
                connection.execute(sql.BEGIN_WRITE)
            except sqlite3.Error as error:
                self._explain(error)
                raise
        self.lent = True
        fork.lent[connection] = self.path
        return connection

    def finish(self, work: Callable[[Step], T], ticket: Ticket[Any]) -> tuple[T, set[str]]:
        """Run `work` last in the transaction of `begin` and commit it; its answer, and the topics to notify."""
        ticket.begin()
        connection = self._connection
        assert connection is not None
        try:
            connection.row_factory, connection.text_factory = None, str  # of the task
            step = Step(connection, self._clock, bulk=False)
            answer = work(step)
        except BaseException as error:
            self.give_up()
            self._explain(error)
            raise
        self.lent = False
        fork.lent.pop(connection, None)
        try:
            self._commit(connection)
        except StoreUnavailable as error:
            if error.__cause__ is None or trouble.code(error.__cause__) != sqlite3.SQLITE_BUSY:
                raise
            # It has the write lock, so it can only wait for itself.
            raise ConfigError(
                f"ctx.transaction() on {self.path} was rolled back: a statement in its block has rows that were not"
                " read, such as the rows of RETURNING. Fetch all rows, or close the cursor"
            ) from error
        self._confirm()
        return answer, step.notified

    def give_up(self, _: object = None) -> None:
        """Roll back the transaction of `begin`, unless it has been committed.

        Before anything takes the lock file: its holder may wait for this transaction. A thread of the task may still
        use the connection, so it can write nothing more, and is closed when the task drops it.
        """
        connection = self._connection
        if not self.lent or connection is None:
            return
        self._connection, self.lent = None, False
        try:
            connection.execute(sql.READ_ONLY)
            connections.roll_back(connection)
        except sqlite3.Error:  # it is closed, or cannot roll back: closing it ends the transaction
            connection.close()

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute(sql.COMMIT)
        except sqlite3.Error as error:
            raise self._failed_commit(connection, error) from error
        self._countdown -= 1

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            connections.roll_back(connection)
        except sqlite3.Error:
            # A connection that cannot roll back is replaced, which ends the transaction.
            self._reconnect()

    def _reconnect(self) -> None:
        self._close_connections()
        try:
            self._connect()
        except sqlite3.Error as error:
            self._explain(error)
            raise

    def _connect(self) -> sqlite3.Connection:
        fork.check(self.path)
        self.files.opening()
        connection = connections.connect_writer(self.path, self._busy_timeout, self._synchronous, self._factory)
        try:
            connection.execute(sql.SCHEMA_TABLE).fetchone()  # which opens the log
            self.files.opened()
        except sqlite3.Error:
            connection.close()
            raise
        except HoldfastError:
            connections.forget(connection)  # the log of that name may be another store's
            raise
        self._connection = connection
        return connection

    def _failed_commit(self, connection: sqlite3.Connection, error: sqlite3.Error) -> HoldfastError:
        """The error for a failed COMMIT, whose frames may be in the log and would come back after a crash.

        Another commit overwrites them. If that fails too, the outcome of a recovery is unknown. After a failed write
        (SQLITE_IOERR_WRITE) the frame that marks a commit is missing.
        """
        if trouble.code(error) != sqlite3.SQLITE_IOERR or error.sqlite_errorcode == sqlite3.SQLITE_IOERR_WRITE:
            self._roll_back(connection)
            return trouble.translate(error, self.path) or StoreUnavailable(
                f"{self.path}: the commit failed ({error}); nothing was written. Run `holdfast doctor`"
            )
        try:
            self._roll_back(connection)
            self._open_connection()[0].execute(sql.SEAL)
        except (sqlite3.Error, HoldfastError):
            return OutcomeUnknown(
                f"{self.path}: the disk reported an error during the commit ({error}); the write may have happened."
                " Check the disk"
            )
        return StoreUnavailable(
            f"{self.path}: the disk reported an error ({error}); nothing was written. Check the disk"
        )

    def _explain(self, error: BaseException) -> None:
        """Raise the Holdfast error for an SQLite error, if there is one."""
        if isinstance(error, sqlite3.DatabaseError) and self.lock is not None:
            self.files.check()
        if isinstance(error, sqlite3.Error) and (meaning := trouble.translate(error, self.path)):
            raise meaning from error

    def is_log_long(self) -> bool:
        """Whether the log has grown long; examined every few commits, and then until `maintain` has copied it."""
        if self._countdown > 0:
            return False
        try:
            size = self._wal.stat().st_size
        except OSError:
            size = 0
        if size > self._wal_limit:
            return True
        self._countdown = WAL_EVERY
        if size <= connections.WAL_LIMIT:
            self._wal_limit, self._pause = connections.WAL_LIMIT, 0.0
        return False

    def maintain(self) -> None:
        """Copy the log into the database if it has grown long; called after each operation."""
        if not self.is_log_long() or self._connection is None or self.lock is None:
            return
        self._countdown = WAL_EVERY
        try:
            with self.lock:
                self._checkpoint(self._connection)
            # If readers prevent its reset, let it grow before the next attempt, and give them more time.
            self._wal_limit = self._wal.stat().st_size + connections.WAL_LIMIT
            self._pause = min(LONGEST_WAL_PAUSE, self._pause * 2 or SHORTEST_WAL_PAUSE)
        except (OSError, sqlite3.Error):
            pass  # a long log costs disk space, not jobs; the next check tries again

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy the log while this thread holds both the lock file and SQLite's write lock, so that nothing can race it.

        The next write then restarts the log and truncates it to its limit, if no reader still uses it. After an attempt
        that failed, wait for readers that block the copying, copy, and wait for readers that came in the meantime;
        later ones read only the database.
        """
        if self._checkpointer is None:
            self._checkpointer = connections.connect_writer(self.path, self._busy_timeout, self._synchronous)
        connection.execute(sql.BEGIN_WRITE)
        try:
            self._checkpointer.execute(sql.CHECKPOINT).fetchone()
            if self._pause:
                sleep(self._pause)
                self._checkpointer.execute(sql.CHECKPOINT).fetchone()
                sleep(self._pause)
        finally:
            connection.execute(sql.ROLLBACK)
