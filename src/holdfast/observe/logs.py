"""Log output of worker and server processes, rendered with structlog: text on a terminal, JSON elsewhere.

structlog is imported only here, when a process calls `set_up`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

COMMON = ("job_id", "job_type", "queue", "attempt", "worker_id", "trace_id")
"""Attributes of a log record that are printed as fields; `ctx.log` sets them."""
Line = dict[str, Any]
Renderer = Callable[[Line], str]


def set_up(level: str, style: str) -> None:
    """Send all log records to standard error. `style`: json, pretty, or auto (pretty on a terminal)."""
    terminal = sys.stderr.isatty()
    pretty = style == "pretty" or (style == "auto" and terminal)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(_pretty(colours=terminal) if pretty else _json()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # No line shows these, and collecting them is a tenth of the cost of a record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def log_file(path: str | Path) -> int:
    """Open a file for appending, created with mode 0600 if missing; returns the descriptor."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def reopen(path: str) -> None:
    """Redirect standard output and error to a newly opened file at this path, after log rotation."""
    try:
        handle = log_file(path)
    except OSError as error:
        logging.getLogger("holdfast").warning(
            "log file %s cannot be reopened, logging continues to the old file: %s", path, error
        )
        return
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)


class _Lines(logging.Formatter):
    """Formats a record with all its fields as one line."""

    def __init__(self, render: Renderer) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        about = record.__dict__
        line: Line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "event": about.get("event") or record.getMessage(),
        }
        fields: Mapping[str, Any] | None = about.get("fields")
        if fields is not None:
            line.update(fields)
        else:
            line.update((name, about[name]) for name in COMMON if about.get(name) is not None)
        if record.name != "holdfast":
            line["logger"] = record.name
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self._render(line)


def _json() -> Renderer:
    render = _structlog().processors.JSONRenderer(serializer=_encode)
    return lambda line: cast("bytes", render(None, "", line)).decode()


_encoder = msgspec.json.Encoder(enc_hook=repr)


def _encode(line: Line, **_: Any) -> bytes:
    return _encoder.encode(line)


def _pretty(*, colours: bool) -> Renderer:
    dev = _structlog().dev
    render = dev.ConsoleRenderer(
        colors=colours, sort_keys=False, pad_event_to=18, exception_formatter=dev.plain_traceback
    )

    def local(line: Line) -> str:
        line["timestamp"] = f"{line['timestamp'].astimezone():%H:%M:%S}"
        return render(None, line["level"], line)

    return local


def _structlog() -> Any:
    # On import, structlog looks for rich, which is installed for the CLI. Hiding it gives plain tracebacks and saves a
    # worker 4 MB and 50 ms.
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = cast("Any", None)
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules["rich"]
    return structlog
