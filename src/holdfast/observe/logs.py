"""How worker processes render the library's log: for the eye on a terminal, as JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

_COLOURS = {"DEBUG": "\033[2m", "INFO": "", "WARNING": "\033[33m", "ERROR": "\033[31m"}


def set_up(level: str, style: str) -> None:
    """Send everything that is logged to standard error. `style`: json, pretty, or auto (by the terminal)."""
    handler = logging.StreamHandler(sys.stderr)
    pretty = style == "pretty" or (style == "auto" and sys.stderr.isatty())
    handler.setFormatter(_Pretty(colour=sys.stderr.isatty()) if pretty else _Json())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(record, "fields", {}))
    for name in ("job_id", "job_type", "attempt", "worker_id"):
        if hasattr(record, name):
            fields.setdefault(name, getattr(record, name))
    return fields


def _event(record: logging.LogRecord) -> str:
    return getattr(record, "event", None) or record.getMessage()


class _Json(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "event": _event(record),
            **_fields(record),
        }
        if record.name != "holdfast":
            line["logger"] = record.name
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


class _Pretty(logging.Formatter):
    """One aligned line per event."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        about = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        text = f"{moment} {record.levelname:7} {_event(record):16} {about}".rstrip()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        start = _COLOURS.get(record.levelname, "") if self._colour else ""
        return f"{start}{text}\033[0m" if start else text
