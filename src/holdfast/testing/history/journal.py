"""A journal: what every process of a run asked for and was told, one line per event, in one file.

Lines are appended by single writes (O_APPEND), so those of many processes never mix, a killed process loses nothing
that it has written, and their order is an order of time: what stands above was over before what stands below began.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ...core.clock import Clock, SystemClock


class Past(msgspec.Struct, frozen=True, gc=False):
    """One line of a stored job's history: a claim that has ended."""

    fence: int
    reset_count: int
    started_at: int | None
    ended_at: int
    outcome: str


class Entry(msgspec.Struct, omit_defaults=True, gc=False):
    """One event. Which fields an event has, `recorded.py` and `program.py` say."""

    event: str
    at: int = 0
    """Microseconds by a clock that all processes of the run share."""
    by: str = ""
    """The process."""
    job: str = ""
    call: str = ""
    """Ties what was told to what was asked."""
    fence: int = 0
    nonce: int = 0
    reset_count: int = 0
    attempt: int = 0
    max_attempts: int = 0
    state: str = ""
    outcome: str = ""
    holder: str = ""
    lease: float = 0.0
    queue: str = ""
    task: str = ""
    tasks: tuple[str, ...] | None = None
    priority: int = 0
    run_at: int = 0
    seq: int = 0
    started_at: int = 0
    limit_key: str = ""
    room: int = 0
    """Claims that the limit key may have at one time; 0: any number."""
    interval: int = 0
    burst: int = 1
    later: bool = False
    """A job that is not due at once."""
    sweep: bool = False
    """A settlement of somebody else's claim, whose lease has ended."""
    key: str = ""
    unique: str = ""
    """For how long the key stands for one job; "": for good."""
    window: float = 0.0
    after: list[tuple[str, str]] | None = None
    """The jobs that one of a flow comes after, and what is to happen when one dies."""
    waiting_for: str = ""
    says: str = ""
    """`ok`, `no` (refused), `failed` (nothing was written), `unknown` (it may have been)."""
    result: str = ""
    expect: str = ""
    """The one state in which a job may end, where the run knows it."""
    what: str = ""
    inserts: list[str] | None = None
    settles: list[bool] | None = None
    changes: list[bool] | None = None
    notes: list[bool] | None = None
    past: list[Past] | None = None


class Journal(Protocol):
    """Where events are written."""

    def write(self, *entries: Entry) -> None:
        """Append these events together."""
        ...


class Pages:
    """A journal in memory, for runs inside one process."""

    def __init__(self, by: str, clock: Clock, entries: list[Entry] | None = None) -> None:
        self.entries: list[Entry] = [] if entries is None else entries
        self._by = by
        self._clock = clock

    def write(self, *entries: Entry) -> None:
        at = self._clock.boot()
        for entry in entries:
            entry.at, entry.by = at, self._by
        self.entries += entries


class JournalFile:
    """One process's end of the journal file."""

    def __init__(self, path: str | Path, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._clock = clock or SystemClock()
        self._encoder = msgspec.json.Encoder()
        self._file = -1
        self._pid = 0

    def write(self, *entries: Entry) -> None:
        at, by = self._clock.boot(), str(os.getpid())
        for entry in entries:
            entry.at, entry.by = at, by
        self._append(self._encoder.encode_lines(entries))

    def note(self, **fields: Any) -> None:
        """A line with fields of one's own, which a check of the history does not read."""
        self._append(self._encoder.encode({"at": self._clock.boot(), "by": str(os.getpid()), **fields}) + b"\n")

    def _append(self, data: bytes) -> None:
        if self._pid != os.getpid():  # a forked child has its own
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._pid = os.getpid()
        if os.write(self._file, data) != len(data):
            raise OSError(f"{self.path}: a line was written only in part; free space on the disk")


def read(path: str | Path) -> Iterator[Entry]:
    """The events of a journal file; half a line at its end, of a process that was killed, is left out."""
    decode = msgspec.json.Decoder(Entry).decode
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decode(line)


def dump(entries: Iterable[Entry]) -> bytes:
    """Events as they would stand in a file."""
    return msgspec.json.Encoder().encode_lines(list(entries))
