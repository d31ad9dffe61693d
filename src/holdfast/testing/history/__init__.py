"""Histories: the requests and answers of every process of a run, and the check that they keep the promises.

    journal = JournalFile("journal")                       # in every process of the run
    app = Holdfast(recorded(store, journal, "worker-1"))   # any store, yours too
    …
    check(read("journal")).demand()                        # raises with all entries of a job that breaks a rule

Programs of a run write the rest themselves: `acknowledged`, `denied`, `began`, `ran`, and at the end `final`.
"""

from .check import Verdict, check, story
from .job_history import Terms
from .journal import Entry, Journal, JournalFile, MemoryJournal, Past, dump, read
from .program import acknowledged, began, calm, denied, emitted, final, got, held_by_expired_holder, left, ran, received
from .recorded import recorded
from .rules import OF_ALL, OF_JOB
from .violation import Violation

__all__ = [
    "OF_ALL",
    "OF_JOB",
    "Entry",
    "Journal",
    "JournalFile",
    "MemoryJournal",
    "Past",
    "Terms",
    "Verdict",
    "Violation",
    "acknowledged",
    "began",
    "calm",
    "check",
    "denied",
    "dump",
    "emitted",
    "final",
    "got",
    "held_by_expired_holder",
    "left",
    "ran",
    "read",
    "received",
    "recorded",
    "story",
]
