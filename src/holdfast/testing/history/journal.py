"""A journal: the requests and answers of every process of a run, one line per event, in one file.

Lines are appended by single writes (O_APPEND): lines of different processes never mix, a killed process loses nothing
that it has written, and the lines are in the order of time: an event was over before the event of the next line began.
A process that is killed during a write may leave the beginning of a line, which `read` drops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ...core.clock import Clock, SystemClock

T = TypeVar("T")


class Past(msgspec.Struct, frozen=True, gc=False):
    """One line of a stored job's history: a claim that has ended."""

    fence: int
    reset_count: int
    started_at: int | None
    ended_at: int
    outcome: str


class Entry(msgspec.Struct, omit_defaults=True, gc=False):
    """One event. `recorded.py` and `program.py` define which fields an event has."""

    event: str
    at: int = 0
    """Microseconds by a clock that all processes of the run share."""
    by: str = ""
    """The process."""
    job: str = ""
    call: str = ""
    """The id of a call: its requests and its answer have the same."""
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
    """The concurrency of the limit key; 0: unlimited."""
    interval: int = 0
    burst: int = 1
    later: bool = False
    """A job that is not due at once."""
    sweep: bool = False
    """The settlement of a claim of another holder, whose lease has expired."""
    key: str = ""
    unique: str = ""
    """How long the job has its key (`unique=`); "": while the key is kept."""
    window: float = 0.0
    after: list[tuple[str, str]] | None = None
    """The dependencies of a job of a flow, and what happens if one is dead."""
    waiting_for: str = ""
    says: str = ""
    """`ok`, `no` (refused), `failed` (nothing was written), `unknown` (the write may have happened)."""
    result: str = ""
    expect: str = ""
    """The only state in which the job may end, if the run knows it."""
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


class MemoryJournal:
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
    """Appends to the journal file; one object per process."""

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
        """Append a line with other fields, which `check` does not read."""
        self._append(self._encoder.encode({"at": self._clock.boot(), "by": str(os.getpid()), **fields}) + b"\n")

    def _append(self, data: bytes) -> None:
        if self._pid != os.getpid():  # a forked child has its own
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._pid = os.getpid()
        if os.write(self._file, data) != len(data):
            raise OSError(f"{self.path}: a line was written only in part; free space on the disk")


def decoded(line: bytes, decode: Callable[[bytes], T]) -> T:
    """One line. If a process was killed as it wrote, the beginning of its line stands in front: it is left out."""
    begin = 0
    while True:
        try:
            return decode(line[begin:])
        except ValueError:
            if (begin := line.find(b'{"', begin + 1)) < 0:
                raise


def read(path: str | Path) -> Iterator[Entry]:
    """The events of a journal file; incomplete lines, of killed processes, are left out."""
    decode = msgspec.json.Decoder(Entry).decode
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoded(line, decode)


def dump(entries: Iterable[Entry]) -> bytes:
    """Events in the format of a journal file."""
    return msgspec.json.Encoder().encode_lines(list(entries))
