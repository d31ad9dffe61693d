"""Output of commands: tables that never wrap an id, JSON, times and durations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.errors import ConfigError
from ..core.job import SHELL_TASK

if TYPE_CHECKING:
    from ..core.errors import HoldfastError
    from ..views import Job

WIDE = 10_000
"""Width in characters of a table not printed to a terminal, so that no cell is cut or wrapped."""
COLOURS = {
    "queued": "cyan", "scheduled": "blue", "blocked": "blue", "running": "yellow", "failed": "magenta",
    "succeeded": "green", "dead": "red", "cancelled": "dim",
}  # fmt: skip


def echo(text: str) -> None:
    """Print one line, with control characters escaped."""
    print(safe(text))


def echo_fields(fields: Mapping[str, Any]) -> None:
    """Print one line per field that is not None."""
    for name, value in fields.items():
        if value is not None:
            echo(f"{name:10} {value}")


def error_message(error: HoldfastError) -> str:
    """The text of an error, with keyword arguments written as options. ConfigErrors are about code: unchanged."""
    if isinstance(error, ConfigError):
        return str(error)
    from ..core.validation import KEYWORD

    return KEYWORD.sub(lambda found: "--" + found[1].replace("_", "-"), str(error))


def json(value: Any) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=str).decode() + "\n")


def document(value: Any) -> None:
    """Print a value as one JSON document, indented if stdout is a terminal."""
    data = msgspec.json.encode(value, enc_hook=str)
    sys.stdout.write((msgspec.json.format(data, indent=2) if sys.stdout.isatty() else data).decode() + "\n")


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, keep: Sequence[str] = ("Job ID",)
) -> None:
    """Print a table. Columns in `keep` are never cut; the others are cut if the terminal is too narrow."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = [[safe(str(cell)) for cell in row] for row in rows]
    shown = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        widest = max([len(name), *(len(row[number]) for row in made)])
        shown.add_column(name, no_wrap=True, overflow="ellipsis", min_width=widest if name in keep else None)
    for row in made:
        shown.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(shown)


def safe(text: str) -> str:
    """The text with non-printable characters escaped, so that it cannot control the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def moment(at: datetime | None) -> str:
    """A time in the local time zone, to the second; empty for None."""
    if at is None:
        return ""
    try:
        return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # out of range in the local zone
        return at.strftime("%Y-%m-%d %H:%M:%S")


def clock_time(at: datetime) -> str:
    """A time of the day in the local time zone."""
    return moment(at)[11:]


def since(at: datetime | None, now: int) -> str:
    """The time between `at` and `now` (microseconds) as a duration; empty for None."""
    return "" if at is None else seconds(datetime.fromtimestamp(now / 1_000_000, UTC).timestamp() - at.timestamp())


def seconds(count: float) -> str:
    """A duration in its two largest units."""
    count = max(0.0, count)
    if count < 60:
        return f"{count:.1f} s" if count < 10 else f"{count:.0f} s"
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if count >= size:
            return f"{int(count // size)} {unit} {int(count % size // below)} {small}"
    return ""


def work(job: Job) -> str:
    """A shell job's command, or the task with its arguments shortened."""
    payload = job.payload
    if isinstance(payload, dict):
        if job.task == SHELL_TASK and isinstance(payload.get("command"), str):  # pyright: ignore[reportUnknownMemberType]
            return payload["command"]  # pyright: ignore[reportUnknownVariableType]
        rest = payload.get("*")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        given = [_short(value) for value in (rest if isinstance(rest, list) else ())]  # pyright: ignore[reportUnknownVariableType]
        given += [f"{name}={_short(value)}" for name, value in payload.items() if name != "*"]  # pyright: ignore[reportUnknownVariableType]
        return f"{job.task}({', '.join(given)})"
    return job.task


def _short(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 40 else text[:39] + "…"
