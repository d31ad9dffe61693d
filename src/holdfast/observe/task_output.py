"""Captures what tasks print and log, for the job that the current context runs; other output is untouched.

While `captured()`, standard output and error are proxies, and each new log record passes `_Factory`: it sees records of
all loggers, whatever handlers they have, and `logging.basicConfig` works as before. A task that writes nothing pays for
one assignment of a context variable.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol, TextIO

from ..core.clock import MICROS, Clock
from ..core.log_lines import MAX_LINE, encode
from ..core.operations import Note

OFF = 1000
"""Above all levels of `logging`."""
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "OFF": OFF}
"""Values of the setting `task_log_level`, as numbers of `logging`."""
_NOT_OF_TASKS = frozenset({"holdfast", "holdfast.http", None})
"""Loggers of Holdfast itself; None for `logging.makeLogRecord`."""
_HANDLING = logging.Logger.callHandlers.__code__
_format = logging.Formatter()


class TaskLog(Protocol):
    """Where the lines of one run go. `send` may be called from any thread."""

    level: int
    """The lowest level that is stored, as a number of `logging`."""
    tee: bool
    """Whether printed text is also written to the process's own stream."""
    open_lines: dict[int, str] | None
    """Printed text without the end of its line, by level; None if nothing was printed."""

    @property
    def clock(self) -> Clock: ...

    def send(self, data: bytes) -> None:
        """Store a marked line."""
        ...

    def pending(self) -> Sequence[Note]:
        """What is to be written before the outcome of the run, unless another process writes it."""
        ...


current: ContextVar[TaskLog | None] = ContextVar("holdfast_task_log", default=None)
"""The log of the run that the current context belongs to."""
_printing = threading.RLock()
"""Held for microseconds. Reentrant, since a signal handler may print."""


def _add_text(log: TaskLog, level: int, text: str) -> None:
    """Send the whole lines of text that was written to a stream of this level."""
    if level < log.level:
        return
    with _printing:
        if log.open_lines is None:
            log.open_lines = {}
        *lines, rest = (log.open_lines.get(level, "") + text).split("\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], ""
        log.open_lines[level] = _overwritten(rest)
        for line in lines:
            _send_line(log, level, line)


def _add_record(log: TaskLog, record: logging.LogRecord) -> None:
    """Send a log record, with its traceback."""
    text = message_of(record)
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text}\n{_traceback(record.exc_info)}"
    if record.stack_info:
        text = f"{text}\n{record.stack_info}"
    log.send(encode(int(record.created * MICROS), record.levelname, record.name, text))


def message_of(record: logging.LogRecord) -> str:
    """The message of a log record. It never raises: the handlers of the logger report what is wrong with the record."""
    with suppress(Exception):  # wrong arguments
        return record.getMessage()
    with suppress(Exception):  # a message of the user's own class
        return str(record.msg)
    return f"(a message of type {type(record.msg).__name__}, whose text cannot be shown)"


def _traceback(raised: Any) -> str:
    """The traceback of a log record; only its last line if the loader of a module raises instead of giving source."""
    with suppress(Exception):
        return _format.formatException(raised)
    with suppress(Exception):
        return "".join(traceback.format_exception_only(raised[1])).rstrip("\n")
    return f"({raised[0].__name__}, whose text cannot be shown)"


def end_lines(log: TaskLog) -> None:
    """The run has ended: send the text that has no end of line."""
    if log.open_lines is not None:
        with _printing:
            for level, text in log.open_lines.items():
                if text:
                    _send_line(log, level, text)
            log.open_lines = None


def _overwritten(text: str) -> str:
    """What a terminal would show of a line: a carriage return begins it again, as for progress bars."""
    before, again, last = text.rpartition("\r")
    return last or before.rpartition("\r")[2] + again


def _send_line(log: TaskLog, level: int, line: str) -> None:
    log.send(encode(log.clock.now(), logging.getLevelName(level), None, _overwritten(line).rstrip("\r")))


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of one job. Its records are stored even if the configuration of `logging` drops their level."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.logger.isEnabledFor(level):
            super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})
        elif current.get() is not None:  # the factory stores it; no handler gets it
            trace = sys.exc_info() if kwargs.get("exc_info") else None
            self.logger.makeRecord(self.logger.name, level, "", 0, msg, args, trace)


class _Stream:
    """A standard stream that sends what tasks write to their logs, and everything to the stream that it replaces."""

    def __init__(self, stream: TextIO, level: int) -> None:
        self.stream = stream
        self.level = level
        self.active = True

    def write(self, text: str) -> int:
        log = current.get()
        if log is None or not self.active:
            return self.stream.write(text)
        if log.tee:
            outer = current.set(None)  # the stream may write to an older proxy
            try:
                self.stream.write(text)
            finally:
                current.reset(outer)
        if not _handling_a_record():
            _add_text(log, self.level, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _captures(stream: object) -> bool:
    return isinstance(stream, _Stream) and stream.active


def _handling_a_record() -> bool:
    """Whether a handler of `logging` writes here: its record was sent when it was made."""
    # The only way to know the callers.
    frame = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code is _HANDLING:
            return True
        frame = frame.f_back
    return False


class _Factory:
    """Makes log records as before, and sends those of tasks to their logs."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self.make = make
        self.active = True

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record, log = self.make(*args, **kwargs), current.get()
        if log is not None and self.active and record.name not in _NOT_OF_TASKS and record.levelno >= log.level:
            _add_record(log, record)
        return record


class _Capture:
    """The proxies of this process, while at least one worker uses them."""

    def __init__(self) -> None:
        self._users = 0
        self._streams: list[tuple[str, _Stream]] = []
        self._factory: _Factory | None = None

    def start(self) -> None:
        """Put a proxy in place of each stream that has none, also if other code has replaced one of another worker."""
        self._users += 1
        for name, level in (("stdout", logging.INFO), ("stderr", logging.WARNING)):
            stream = getattr(sys, name)
            if stream is not None and not _captures(stream):
                proxy = _Stream(stream, level)
                self._streams.append((name, proxy))
                setattr(sys, name, proxy)
        if self._factory is None:
            self._factory = _Factory(logging.getLogRecordFactory())
            logging.setLogRecordFactory(self._factory)

    def stop(self) -> None:
        """What other code has put in place of a proxy, or keeps one, stays as it is."""
        self._users = max(0, self._users - 1)
        if self._users:
            return
        for name, proxy in reversed(self._streams):
            proxy.active = False
            if getattr(sys, name) is proxy:
                setattr(sys, name, proxy.stream)
        self._streams = []
        if (factory := self._factory) is not None:
            factory.active = False
            if logging.getLogRecordFactory() is factory:
                logging.setLogRecordFactory(factory.make)
            self._factory = None

    def forked(self) -> None:
        """A child process runs no job of its parent."""
        self._users = 1
        self.stop()
        current.set(None)


_capture = _Capture()
os.register_at_fork(after_in_child=_capture.forked)


@contextmanager
def captured() -> Generator[None]:
    """While the block runs, output and log records of contexts with a `current` log go there. Blocks may overlap."""
    _capture.start()
    try:
        yield
    finally:
        _capture.stop()
