"""A journal that many processes append to: one line per event, each by a single write, so that no two ever mix.

Events of a run: `start`, then `end` (it returned) or `broken` (it raised, or was interrupted), unless its process dies.
Events of the store's answers: `claimed`, `settled`, `refused`, and `acked` (an enqueue returned).
Trouble: `warning` (something was logged), `outage` (the store failed), `error` (something was raised that ended the
process).
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.testing.history import JournalFile
from holdfast.testing.history.journal import decoded

Entry = dict[str, Any]


class Journal:
    """One process's view of the journal file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = JournalFile(self.path)
        self._read_to = 0
        self._entries: list[Entry] = []

    # -- writing

    def write(self, event: str, job: str | None = None, **fields: Any) -> None:
        """Append a line, stamped with this process and the machine's steady clock."""
        self._file.note(event=event, job=job, pid=os.getpid(), at=time.monotonic(), **fields)

    # -- reading

    def entries(self, *events: str, jobs: Iterable[str] | None = None) -> list[Entry]:
        """What has been written so far, of these events and jobs where given, in the order of writing."""
        self._read_on()
        wanted = None if jobs is None else set(jobs)
        return [
            entry
            for entry in self._entries
            if (not events or entry["event"] in events) and (wanted is None or entry["job"] in wanted)
        ]

    def count(self, event: str, *, pid: int | None = None, jobs: Iterable[str] | None = None) -> int:
        return sum(1 for entry in self.entries(event, jobs=jobs) if pid is None or entry["pid"] == pid)

    def per_job(self, event: str, jobs: Iterable[str] | None = None) -> Counter[str]:
        """How many such events each job has."""
        return Counter(entry["job"] for entry in self.entries(event, jobs=jobs))

    def of(self, job: str) -> str:
        """Everything about one job, fit for a failure message."""
        return "\n".join(_shown(entry) for entry in self.entries(jobs=[job])) or "    (nothing in the journal)"

    def _read_on(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._entries += [decoded(line, json.loads) for line in data[:whole].splitlines()]
        self._read_to += whole


def _shown(entry: Entry) -> str:
    rest = "  ".join(
        f"{name}={value!r}" for name, value in entry.items() if name not in ("at", "by", "pid", "event", "job")
    )
    return f"    {entry['at']:.4f}  pid {entry['pid']}  {entry['event']}  {rest}"


def spans(journal: Journal, jobs: Iterable[str] | None = None) -> list[tuple[float, float, Entry]]:
    """Every run as (from, to, its start). One without an end, as in a killed process, lasts to the end of time."""
    ends = {_run(entry): entry["at"] for entry in journal.entries("end", "broken", jobs=jobs)}
    return [(entry["at"], ends.get(_run(entry), float("inf")), entry) for entry in journal.entries("start", jobs=jobs)]


def _run(entry: Entry) -> tuple[str, int, int]:
    return entry["job"], entry["fence"], entry["pid"]


def most_at_once(journal: Journal) -> int:
    """The highest number of runs that were under way at one moment."""
    steps = sorted(
        step for begin, end, _ in spans(journal) for step in ((begin, 1), (end, -1)) if step[0] != float("inf")
    )
    now = most = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most
