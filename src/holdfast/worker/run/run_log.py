"""The lines that a task prints and logs, stored as the output of its job's attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.clock import Clock
from ...core.job import Record
from ...core.operations import Note
from ...observe.task_output import LEVELS, OFF, current, end_lines
from ..processes.output import OutputWriter

if TYPE_CHECKING:
    from ...client.session import Session
    from ...tasks.task import Task


class RunLogs:
    """Begins the logs of a worker's runs, with the settings as they are then."""

    def __init__(self, session: Session, write_note: Callable[[Note], Awaitable[bool]]) -> None:
        self.session = session
        self.write_note = write_note
        self.loop = asyncio.get_running_loop()

    def begin(self, record: Record, task: Task[..., Any]) -> RunLog | None:
        """The log of a claim, from now on the one of the current context; None if its lines are not stored.

        A built-in task has none: it writes output itself.
        """
        level = LEVELS[task.log_level or self.session.settings.task_log_level]
        log = None if level == OFF or task.built_in else RunLog(self, record, level)
        current.set(log)
        return log


class RunLog:
    """The log of one claim. Its writer is made for the first line: most runs write none, and make only this."""

    tee = True
    open_lines: dict[int, str] | None = None
    _writer: OutputWriter | None = None
    _ended = False

    def __init__(self, logs: RunLogs, record: Record, level: int) -> None:
        self._logs = logs
        self._record = record
        self.level = level

    @property
    def clock(self) -> Clock:
        return self._logs.session.clock

    @property
    def writer(self) -> OutputWriter:
        """Writes all output of the claim, in one order: also that of its processes."""
        if self._writer is None:
            session = self._logs.session
            self._writer = OutputWriter(self._record.id, self._write, session.settings.max_output, self._logs.loop)
        return self._writer

    def send(self, data: bytes) -> None:
        if not self._ended:  # a background task may outlive its job
            self.writer.put(data)

    def pending(self) -> Sequence[Note]:
        return () if self._writer is None else [self._note(output=piece) for piece in self._writer.pending()]

    def end(self) -> Sequence[Note]:
        """The run has ended: what is to be written before its outcome."""
        if self.open_lines is not None:
            end_lines(self)
        self._ended = True
        return () if self._writer is None else [self._note(output=piece) for piece in self._writer.end()]

    def _write(self, **fields: Any) -> Awaitable[bool]:
        return self._logs.write_note(self._note(**fields))

    def _note(self, **fields: Any) -> Note:
        record = self._record
        return Note(record.id, record.seq, record.fence, record.token, **fields)


class BatchLog:
    """The log of one call for several jobs: each of them gets its lines."""

    tee = True

    def __init__(self, logs: Sequence[RunLog]) -> None:
        self.level = logs[0].level
        self.clock = logs[0].clock
        self.open_lines: dict[int, str] | None = None
        self._logs = logs

    def pending(self) -> Sequence[Note]:
        return ()  # a job of a batch has no transaction

    def send(self, data: bytes) -> None:
        for log in self._logs:
            log.send(data)


def begin_together(logs: Iterable[RunLog | None]) -> BatchLog | None:
    """The log of one call for the jobs of these logs, from now on the one of the current context."""
    stored = [log for log in logs if log is not None]
    log = BatchLog(stored) if stored else None
    current.set(log)
    return log
