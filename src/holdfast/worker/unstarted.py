"""The claims of a worker that wait for a thread, in memory that it shares with its supervisor.

If the worker crashes, its supervisor releases them without charging an attempt: they had not started.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from ..core.job import Record

ENTRIES = 250
"""Claims that may wait for a thread at once."""
REQUESTS_SHARED = 16
"""Claim requests that may be unanswered at once; one more is not entered, and its jobs are charged after a crash."""
SIZE = ENTRIES * 16 + REQUESTS_SHARED * 8
"""Bytes: an entry is `seq` and `fence` of a job, 0 if it is free; then the tokens of requests, 0 if free."""


def shared_memory() -> int:
    """A file descriptor of new memory that a child process can inherit."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("holdfast-unstarted")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, SIZE)
    return fd


class Unstarted:
    """One worker's entries; the worker writes them, its supervisor reads them after its end."""

    def __init__(self, fd: int) -> None:
        self._numbers = memoryview(mmap.mmap(fd, SIZE)).cast("q")
        self._free = list(range(ENTRIES))
        self._free_requests = list(range(2 * ENTRIES, 2 * ENTRIES + REQUESTS_SHARED))

    @property
    def full(self) -> bool:
        return not self._free

    def add(self, record: Record) -> int:
        """Enter a claim; returns the number of its entry."""
        index = self._free.pop()
        self._numbers[2 * index + 1] = record.fence
        self._numbers[2 * index] = record.seq  # last: it makes the entry valid
        return index

    def remove(self, index: int) -> None:
        """The claim has started, or ends without it; from any thread."""
        self._numbers[2 * index] = 0
        self._free.append(index)

    @contextmanager
    def requesting(self, token: int) -> Generator[None]:
        """While a claim request is unanswered: the jobs of its token have not started."""
        at = self._free_requests.pop() if self._free_requests else None
        if at is not None:
            self._numbers[at] = token
        try:
            yield
        finally:
            if at is not None:
                self._numbers[at] = 0
                self._free_requests.append(at)

    def read(self) -> set[tuple[int, int]]:
        """`seq` and `fence` of each claim that waits for a thread."""
        numbers = self._numbers
        return {(numbers[at], numbers[at + 1]) for at in range(0, 2 * ENTRIES, 2) if numbers[at]}

    def covers(self, record: Record) -> bool:
        """Whether the claim of this record had not started."""
        in_transit = record.token in self._numbers[2 * ENTRIES :].tolist()
        return in_transit or (record.seq, record.fence) in self.read()
