"""The lines of a job's output: how those of tasks are stored, with level and time, beside plain output.

A marked line is `RS time level logger text LF`: RS is the byte 0x1e, the time is in microseconds, `-` stands for no
logger, and a line feed inside the text is stored as the byte 0x1f. Everything else is plain: output of commands and of
child processes, as they wrote it. A marked line may follow plain output that has not ended its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo

import msgspec

from .clock import EPOCH
from .operations import Printed

_MARK = b"\x1e"
_BEGINS = re.compile(rb"(?<=\n)\x1e|\x1e\d{1,18} \S+ \S+ ")
"""A marked line: an RS at the start of a line, or with the head that distinguishes it from an RS in plain output."""
_STORED = {0x0A: 0x1F, 0x1F: 0x20}
MAX_LINE = 1 << 18
"""Characters of one marked line; the rest is cut."""
MAX_OPEN = 1 << 20
"""Bytes of a line without an end for which a reader waits; longer ones are returned in parts."""
MAX_HELD = 8 * MAX_LINE
"""The same for what may become a marked line: such a line has at most 6 bytes for each character of its text."""
TASK_LOGGER = "holdfast.job"
"""The logger of `ctx.log`, which text forms do not name."""


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """A line of a job's output, or a log record, whose text may have several lines."""

    position: int
    """Its offset, in bytes over all claims of the job."""
    fence: int
    """The fence of the claim that wrote it."""
    attempt: int | None
    """The number of that claim's attempt; None if the job's history no longer has it."""
    text: str
    """Without the line feed at its end."""
    level: str | None = None
    """`debug`, `info`, `warning`, `error`, `critical` or a level of your own; None for plain output."""
    time: datetime | None = None
    """When it was written; None for plain output."""
    logger: str | None = None
    """The name of the logger; None for printed and plain output."""


def encode(at: int, level: str, logger: str | None, text: str) -> bytes:
    """A marked line. `at`: microseconds since 1970."""
    if len(text) > MAX_LINE:
        text = f"{text[:MAX_LINE]}… ({len(text) - MAX_LINE} more characters were not stored)"
    head = f"\x1e{at} {_word(level.lower())} {_word(logger)} "
    return f"{head}{text.translate(_STORED)}\n".encode("utf-8", "backslashreplace")


def _word(text: str | None) -> str:
    return "_".join(text.split()) if text else "-"


def as_text(line: LogLine, zone: tzinfo | None = None) -> str:
    """A line for people, with the time in this zone (None: the machine's)."""
    named = "" if line.logger in (None, TASK_LOGGER) else f"{line.logger}: "
    level = f"{line.level:8} " if line.level else ""
    time = "" if line.time is None else f"{line.time.astimezone(zone):%Y-%m-%d %H:%M:%S}{'Z' if zone else ''} "
    return f"{time}{level}{named}{line.text}"


class Splitter:
    """Splits chunks of output, in their order, into marked lines and the plain output between them."""

    def __init__(self, position: int = 0) -> None:
        self._end = position
        """Where the next chunk begins, unless output was dropped."""
        self._fence: int | None = None
        self._held = b""
        """The beginning of a marked line."""
        self._at_start = True
        """Whether the next byte begins a line."""

    @property
    def position(self) -> int:
        """The end of what was returned: another reader can continue here."""
        return self._end - len(self._held)

    def split(self, piece: Printed) -> Iterator[LogLine | Printed]:
        """The parts of the next chunk; a marked line without its end waits for the next one."""
        data = piece.data[max(0, self._end - piece.position) :]
        dropped = piece.position - self._end
        if dropped > 0 or piece.fence != self._fence:
            yield from self.rest()
            self._at_start, self._fence = True, piece.fence
        if dropped > 0:
            text = f"{dropped} bytes of older output were dropped: the setting max_output limits what is kept"
            yield LogLine(self._end, piece.fence, None, text, "warning", None, "holdfast")
        data, begin = self._held + data, max(self._end, piece.position) - len(self._held)
        self._end, self._held, start = begin + len(data), b"", 0
        open_mark = data.find(_MARK, data.rfind(b"\n") + 1)
        while start < len(data):
            end = self._mark_from(data, start, open_mark)
            if end == start == open_mark and len(data) - start <= MAX_HELD:
                self._held = data[start:]
                return
            if end == start != open_mark:
                end = data.index(b"\n", start) + 1
                self._at_start = True
                yield _decoded(data[start + 1 : end - 1], begin + start, piece.fence)
            else:
                end = len(data) if end == start else end
                self._at_start = data.endswith(b"\n", start, end)
                yield Printed(begin + start, piece.fence, data[start:end])
            start = end

    def _mark_from(self, data: bytes, start: int, open_mark: int) -> int:
        """Where the next marked line begins, or what may become one; the end of the data if there is none.

        `open_mark`: the first RS after the last line feed, -1 if there is none.
        """
        if self._at_start and data.startswith(_MARK, start):
            return start
        found = _BEGINS.search(data, start)
        at = len(data) if found is None else found.start()
        return min(at, open_mark) if open_mark >= start else at

    def rest(self) -> Iterator[Printed]:
        """What waits for the end of its line, as plain output."""
        if self._held and self._fence is not None:
            held, self._held = self._held, b""
            yield Printed(self._end - len(held), self._fence, held)


class Lines:
    """Splits chunks of output, in their order, into whole lines."""

    def __init__(self, position: int = 0) -> None:
        self._parts = Splitter(position)
        self._open: Printed | None = None
        """A plain line without its end."""

    @property
    def position(self) -> int:
        """As of a Splitter."""
        return self._parts.position if self._open is None else self._open.position

    def add(self, piece: Printed) -> list[LogLine]:
        """The lines of the next chunk; one without its end waits for the next chunk."""
        found: list[LogLine] = []
        for part in self._parts.split(piece):
            self._take(part, found)
        if self._open is not None and len(self._open.data) > MAX_OPEN:
            found += self.rest()
        return found

    def rest(self) -> list[LogLine]:
        """The last line, if it has no end."""
        found: list[LogLine] = []
        for part in self._parts.rest():
            self._take(part, found)
        self._end_line(found)
        return found

    def _take(self, part: LogLine | Printed, found: list[LogLine]) -> None:
        before = self._open
        if isinstance(part, LogLine) or (before is not None and before.fence != part.fence):
            self._end_line(found)
        if isinstance(part, LogLine):
            found.append(part)
            return
        if before is not None and self._open is before:
            part = Printed(before.position, part.fence, before.data + part.data)
        position, *lines = part.position, *part.data.split(b"\n")
        for line in lines[:-1]:
            found.append(_plain(position, part.fence, line))
            position += len(line) + 1
        self._open = Printed(position, part.fence, lines[-1]) if lines[-1] else None

    def _end_line(self, found: list[LogLine]) -> None:
        if (line := self._open) is not None:
            self._open = None
            found.append(_plain(line.position, line.fence, line.data))


def _plain(position: int, fence: int, line: bytes) -> LogLine:
    return LogLine(position, fence, None, line.decode("utf-8", "replace"))


def _decoded(line: bytes, position: int, fence: int) -> LogLine:
    """A marked line without its mark and line feed; plain if it is none."""
    text = line.decode("utf-8", "replace")
    at, _, rest = text.partition(" ")
    level, _, rest = rest.partition(" ")
    logger, complete, rest = rest.partition(" ")
    if not complete or not at.isdecimal() or len(at) > 18:
        return LogLine(position, fence, None, text)
    time = EPOCH + timedelta(microseconds=int(at))
    return LogLine(position, fence, None, rest.replace("\x1f", "\n"), level, time, None if logger == "-" else logger)
