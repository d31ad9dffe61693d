"""Log output of worker and server processes: text on a terminal, JSON elsewhere."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from .job_fields import fields_for

LINE_AGE = 0.05
"""Seconds until a line is written: a write for each line would cost as much as a short job."""
BATCH = 1000
"""Lines that are written at once at the latest."""
Line = dict[str, Any]
Renderer = Callable[[Line], str]


def set_up(level: str, style: str) -> None:
    """Send all log records to standard error. `style`: json, pretty, or auto (pretty on a terminal)."""
    terminal = sys.stderr.isatty()
    pretty = style == "pretty" or (style == "auto" and terminal)
    handler = BatchHandler()
    handler.setFormatter(_Lines(_pretty(COLOURS if terminal else PLAIN) if pretty else _json))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # No line shows these, and collecting them is a tenth of the cost of a record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def flush() -> None:
    """Write all lines now: before a process ends without `logging.shutdown`."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class BatchHandler(logging.StreamHandler[Any]):
    """Writes lines to standard error in batches, at most LINE_AGE late; a warning at once, with all lines before it."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._lines: list[str] = []
        self._closed = False
        self._waiting = threading.Event()
        self._thread: threading.Thread | None = None
        os.register_at_fork(before=self.flush, after_in_child=self._forked)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._add(self.format(record), record.levelno)
        except Exception:  # noqa: BLE001  # as every handler: a broken record never stops the program
            self.handleError(record)

    def _add(self, line: str, level: int) -> None:
        self._lines.append(line)
        if level >= logging.WARNING or len(self._lines) >= BATCH or self._closed:
            self.flush()
        elif not self._waiting.is_set():
            self._write_later()

    @property
    def event_writer(self) -> Callable[..., None] | None:
        """`write_event`; None if the program has set its own formatter."""
        return self.write_event if type(self.formatter) is _Lines else None

    def write_event(self, level: int, name: str, fields: Mapping[str, Any], at: float, traceback: str | None) -> None:
        """Write the line of an event without a log record, which costs more than the line."""
        line: Line = {"timestamp": datetime.fromtimestamp(at, UTC), "level": _level(level), "event": name, **fields}
        if traceback is not None:
            line["traceback"] = traceback
        self.acquire()
        try:
            self._add(cast("_Lines", self.formatter).render(line), level)
        except Exception:  # noqa: BLE001  # as in `emit`
            self.handleError(logging.makeLogRecord({"msg": name}))
        finally:
            self.release()

    def flush(self) -> None:
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            if lines:
                self.stream.write("\n".join(lines) + "\n")
                super().flush()
        finally:
            self.release()

    def close(self) -> None:
        """`logging.shutdown` closes it when the interpreter ends; later lines are written at once."""
        self._closed = True
        super().close()

    def _write_later(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="holdfast-log", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads here, or the interpreter ends
                self._thread = None
                self.flush()
                return
        self._waiting.set()

    def _write(self) -> None:
        while self._waiting.wait():
            time.sleep(LINE_AGE)
            self._waiting.clear()
            with suppress(OSError, ValueError):  # the reader has gone, or the stream was closed
                self.flush()

    def _forked(self) -> None:
        """A child has none of its parent's threads, and writes none of its lines."""
        self._lines, self._waiting, self._thread = [], threading.Event(), None


def log_file(path: str | Path) -> int:
    """Open a file for appending, created with mode 0600 if missing; returns the descriptor."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def reopen(path: str) -> None:
    """Redirect standard output and error to a newly opened file at this path, after log rotation."""
    try:
        handle = log_file(path)
    except OSError as error:
        logging.getLogger("holdfast").warning(
            "log file %s cannot be reopened, logging continues to the old file: %s; correct this, then send SIGHUP"
            " again",
            path,
            error,
        )
        return
    flush()
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)


class _Lines(logging.Formatter):
    """Formats a record with all its fields as one line."""

    def __init__(self, render: Renderer) -> None:
        super().__init__()
        self.render = render

    def format(self, record: logging.LogRecord) -> str:
        about = record.__dict__
        line: Line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC),
            "level": _level(record.levelno),
            "event": about.get("event") or record.getMessage(),
        }
        fields: Mapping[str, Any] | None = about.get("fields")
        line.update(fields_for(record) if fields is None else fields)
        if record.name != "holdfast":
            line["logger"] = record.name
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        elif record.exc_text:  # of a job, which has no exception any more
            line["traceback"] = record.exc_text
        return self.render(line)


@functools.cache
def _level(number: int) -> str:
    return logging.getLevelName(number).lower()


_encoder = msgspec.json.Encoder(enc_hook=repr)


def _json(line: Line) -> str:
    return _encoder.encode(line).decode()


_END = "\x1b[0m"
COLOURS: Mapping[str, tuple[str, str]] = {
    "time": ("\x1b[2m", _END),
    "debug": ("\x1b[2m", _END),
    "info": ("\x1b[32m", _END),
    "warning": ("\x1b[33m", _END),
    "error": ("\x1b[31m", _END),
    "critical": ("\x1b[1;31m", _END),
    "event": ("\x1b[1m", _END),
    "field": ("\x1b[36m", _END),
}
"""Text before and after: the time, each level, the event, the name of a field."""
PLAIN: Mapping[str, tuple[str, str]] = dict.fromkeys(COLOURS, ("", ""))


def _pretty(colours: Mapping[str, tuple[str, str]]) -> Renderer:
    """Lines such as `12:30:00 info     job_succeeded      job_id=1`; a traceback follows on separate lines."""
    (dim, undim), (bold, unbold), (key, unkey) = colours["time"], colours["event"], colours["field"]

    def render(line: Line) -> str:
        at, level, event = line.pop("timestamp"), line.pop("level"), line.pop("event")
        trace = line.pop("traceback", None)
        start, end = colours.get(level, ("", ""))
        fields = "".join(f" {key}{name}{unkey}={_shown(value)}" for name, value in line.items())
        clock = _clock(int(at.timestamp()))
        shown = f"{dim}{clock}{undim} {start}{level:8}{end} {bold}{_printable(event):18}{unbold}{fields}"
        return shown if trace is None else "\n".join((shown, *map(_printable, trace.splitlines())))

    return render


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()


@functools.lru_cache(2)
def _clock(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):  # of names or numbers
        value = ",".join(map(str, cast("Sequence[object]", value)))
    text = value if isinstance(value, str) else repr(value)
    return text if text.isprintable() and " " not in text and text else repr(text)
