"""Parses a journal: all operations, claims, ends, changes and runs of each job, with the places of request and answer.

A place is a line number of the journal: an operation was done before every request at a higher place than its answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...core.job import TERMINAL
from .journal import Entry

NEVER = 1 << 62
"""The place of a missing answer."""
POSSIBLE = frozenset({"ok", "unknown"})


@dataclass(slots=True)
class Asked:
    """One operation and its answer: `says` is ok, no, failed or unknown."""

    entry: Entry
    asked: int
    answered: int = NEVER
    answered_at: int = 0
    says: str = "unknown"


@dataclass(slots=True)
class End:
    """One settlement with all its repeats, which have the same nonce."""

    sent: list[Asked]

    @property
    def entry(self) -> Entry:
        return self.sent[0].entry

    @property
    def asked(self) -> int:
        return self.sent[0].asked

    @property
    def accepted(self) -> Asked | None:
        """The first repeat that the store accepted."""
        return next((one for one in self.sent if one.says == "ok"), None)

    @property
    def possible(self) -> bool:
        """Whether it may have been written."""
        return any(one.says in POSSIBLE for one in self.sent)


@dataclass(slots=True)
class Claim:
    """A claim that its holder received."""

    entry: Entry
    asked: int
    asked_at: int
    answered: int
    any_task: bool

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.entry.priority, self.entry.run_at, self.entry.seq)


@dataclass(slots=True)
class JobHistory:
    """All entries of the journal about one job."""

    id: str
    run: History
    inserts: list[Asked] = field(default_factory=list[Asked])
    acks: list[Entry] = field(default_factory=list[Entry])
    claims: list[Claim] = field(default_factory=list[Claim])
    ends: dict[int, End] = field(default_factory=dict[int, End])
    changes: list[Asked] = field(default_factory=list[Asked])
    notes: list[Asked] = field(default_factory=list[Asked])
    began: list[Entry] = field(default_factory=list[Entry])
    ran: set[int] = field(default_factory=set[int])
    got: list[Entry] = field(default_factory=list[Entry])
    emitted: list[Entry] = field(default_factory=list[Entry])
    received: list[Entry] = field(default_factory=list[Entry])
    denied: bool = False
    final: Entry | None = None
    held: Entry | None = None
    story: list[tuple[int, Entry]] = field(default_factory=list[tuple[int, Entry]])

    def reset_count_of(self, fence: int) -> int | None:
        """The `reset_count` of the job when a claim was made; None if it is not recorded."""
        for claim in self.claims:
            if claim.entry.fence == fence:
                return claim.entry.reset_count
        past = None if self.final is None else self.final.past
        return next((line.reset_count for line in past or () if line.fence == fence), None)

    @property
    def may_be_gone(self) -> bool:
        """Whether an operator may have deleted it, or its end removed it."""
        return any(one.entry.what == "delete" and one.says in POSSIBLE for one in self.changes) or any(
            end.entry.what == "removes" and end.possible for end in self.ends.values()
        )

    @property
    def recreated(self) -> bool:
        """Whether it may have been removed while its enqueue was still being repeated, and so created again.

        Then two jobs had one id: fences begin again, and no rule can distinguish them.
        """
        return len(self.inserts) > 1 and self.may_be_gone


@dataclass(slots=True)
class Renewed:
    """A heartbeat that was answered."""

    asked_at: int
    answered: int
    lease: float


@dataclass(frozen=True, slots=True)
class Terms:
    """Properties of a run, on which the rules depend."""

    drained: bool = True
    """It continued without faults until all jobs had ended."""
    store_time: bool = True
    """The store had one wall clock: false on SQLite if processes had wrong ones."""
    runs: bool = True
    """The code of the jobs writes to the journal that it began and ended."""
    all_recorded: bool = True
    """All writers are recorded: false if a Holdfast server sweeps too."""
    deletes: bool = True
    """Operators delete jobs: false if no acknowledged job may be removed."""
    locks: bool = True
    """A pending ask may hide jobs from others (locked rows): false if each ask is one atomic step."""


@dataclass(slots=True)
class History:
    """A whole run."""

    terms: Terms
    jobs: dict[str, JobHistory] = field(default_factory=dict[str, JobHistory])
    heartbeats: dict[str, list[Renewed]] = field(default_factory=dict[str, list[Renewed]])
    """By holder, in the order of their answers."""
    gone: dict[str, int] = field(default_factory=dict[str, int])
    """Holders that left or were known to be dead, and the first place of that."""
    unanswered: list[int] = field(default_factory=list[int])
    """The places of unanswered asks, which may have claimed any jobs, and may still be pending."""
    judged: int = 0
    """Claims whose order in their queue was checked."""
    left: list[Entry] = field(default_factory=list[Entry])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    length: int = 0

    def job(self, id: str) -> JobHistory:
        found = self.jobs.get(id)
        if found is None:
            found = self.jobs[id] = JobHistory(id, self)
        return found


class _Call:
    __slots__ = ("any_task", "asked", "asked_at", "asks", "changes", "inserts", "notes", "settles")

    def __init__(self, asked: int, asked_at: int) -> None:
        self.asked = asked
        self.asked_at = asked_at
        self.inserts: list[Asked] = []
        self.notes: list[Asked] = []
        self.settles: list[Asked] = []
        self.changes: list[Asked] = []
        self.asks = 0
        self.any_task = True


def parse_history(entries: Iterable[Entry], terms: Terms) -> History:
    """Parse a whole journal."""
    history = History(terms)
    calls: dict[str, _Call] = {}
    heartbeats: dict[str, Entry] = {}
    place = 0
    for place, entry in enumerate(entries):
        event = entry.event
        history.counts[event] = history.counts.get(event, 0) + 1
        if event == "answered":
            if (heartbeat := heartbeats.pop(entry.call, None)) is not None:
                history.heartbeats.setdefault(heartbeat.holder, []).append(
                    Renewed(heartbeat.at, place, heartbeat.lease)
                )
            elif (call := calls.get(entry.call)) is not None:
                _answered(history, call, entry, place)
                if entry.says != "ok":
                    del calls[entry.call]
            continue
        if event == "heartbeat":
            heartbeats[entry.call] = entry
            continue
        if event == "leave":
            history.gone.setdefault(entry.holder, place)
            continue
        if event == "left":
            history.left.append(entry)
            continue
        if event == "ask":
            call = _call(calls, entry, place)
            call.asks += 1
            call.any_task = call.any_task and entry.tasks is None
            continue
        if entry.job:
            job = history.job(entry.job)
            job.story.append((place, entry))
            _of_job(job, entry, place, calls)
    history.length = place + 1
    history.unanswered += [call.asked for call in calls.values() if call.asks]
    return history


def _call(calls: dict[str, _Call], entry: Entry, place: int) -> _Call:
    found = calls.get(entry.call)
    if found is None:
        found = calls[entry.call] = _Call(place, entry.at)
    return found


def _of_job(job: JobHistory, entry: Entry, place: int, calls: dict[str, _Call]) -> None:
    event = entry.event
    if event == "insert":
        asked = Asked(entry, place)
        _call(calls, entry, place).inserts.append(asked)
        job.inserts.append(asked)
    elif event == "settle":
        asked = Asked(entry, place)
        _call(calls, entry, place).settles.append(asked)
        if entry.nonce in job.ends:
            job.ends[entry.nonce].sent.append(asked)
        else:
            job.ends[entry.nonce] = End([asked])
    elif event == "change":
        asked = Asked(entry, place)
        _call(calls, entry, place).changes.append(asked)
        job.changes.append(asked)
    elif event == "note":
        asked = Asked(entry, place)
        _call(calls, entry, place).notes.append(asked)
        job.notes.append(asked)
    elif event == "claimed":
        call = _call(calls, entry, place)
        call.asks = 0  # it was answered
        job.claims.append(Claim(entry, call.asked, call.asked_at, place, call.any_task))
    elif event == "acked":
        job.acks.append(entry)
    elif event == "denied":
        job.denied = True
    elif event == "began":
        job.began.append(entry)
    elif event == "ran":
        job.ran.add(entry.fence)
    elif event == "got":
        job.got.append(entry)
    elif event == "emitted":
        job.emitted.append(entry)
    elif event == "received":
        job.received.append(entry)
    elif event == "final":
        job.final = entry
    elif event == "held":
        job.held = entry


def _answered(history: History, call: _Call, entry: Entry, place: int) -> None:
    if entry.says != "ok":
        says = "failed" if entry.says == "failed" else "unknown"
        for one in (*call.inserts, *call.notes, *call.settles, *call.changes):
            one.says, one.answered, one.answered_at = says, place, entry.at
        if call.asks and says == "unknown":
            # The caller no longer waits, but the request may still arrive.
            history.unanswered.append(call.asked)
        return
    call.asks = 0
    for one, answer in zip(call.inserts, entry.inserts or (), strict=False):
        outcome, _, id = answer.partition(" ")
        one.says = "ok" if outcome == "created" and id == one.entry.job else "no"
        one.answered, one.answered_at = place, entry.at
    for asked, answers in ((call.notes, entry.notes), (call.settles, entry.settles), (call.changes, entry.changes)):
        for one, yes in zip(asked, answers or (), strict=False):
            one.says, one.answered, one.answered_at = "ok" if yes else "no", place, entry.at


def ended(job: JobHistory) -> bool:
    """Whether its final state in the store is terminal."""
    return job.final is not None and job.final.state in TERMINAL
