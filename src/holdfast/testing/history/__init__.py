"""Histories: what every process of a run asked and was told, and the check that all of it keeps the promises.

    journal = JournalFile("journal")                       # in every process of the run
    app = Holdfast(recorded(store, journal, "worker-1"))   # any store, yours too
    …
    check(read("journal")).demand()                        # or the whole story of the job that broke a rule

Programs of a run write the rest themselves: `acknowledged`, `denied`, `began`, `ran`, and at the end `final`.
"""

from .broken import Broken
from .check import Verdict, check, story
from .journal import Entry, Journal, JournalFile, Pages, Past, dump, read
from .lives import Terms
from .program import acknowledged, began, calm, denied, final, got, held_by_the_dead, left, ran
from .recorded import recorded
from .rules import OF_ALL, OF_JOB

__all__ = [
    "OF_ALL",
    "OF_JOB",
    "Broken",
    "Entry",
    "Journal",
    "JournalFile",
    "Pages",
    "Past",
    "Terms",
    "Verdict",
    "acknowledged",
    "began",
    "calm",
    "check",
    "denied",
    "dump",
    "final",
    "got",
    "held_by_the_dead",
    "left",
    "ran",
    "read",
    "recorded",
    "story",
]
