"""A journal, read once: for each job what was asked, claimed, ended, changed and run, with when it was asked and told.

"When" is a place in the journal: what was told at a lower place than something else was asked had happened before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...core.job import TERMINAL
from .journal import Entry

NEVER = 1 << 62
"""The place of an answer that did not come."""
POSSIBLE = frozenset({"ok", "unknown"})


@dataclass(slots=True)
class Asked:
    """One operation and its fate: `says` is ok, no, failed or unknown."""

    entry: Entry
    asked: int
    told: int = NEVER
    told_at: int = 0
    says: str = "unknown"


@dataclass(slots=True)
class End:
    """One settlement, however often it was sent: they share a nonce."""

    sent: list[Asked]

    @property
    def entry(self) -> Entry:
        return self.sent[0].entry

    @property
    def asked(self) -> int:
        return self.sent[0].asked

    @property
    def accepted(self) -> Asked | None:
        """Where the store first said yes."""
        return next((one for one in self.sent if one.says == "ok"), None)

    @property
    def possible(self) -> bool:
        """Whether it may have been written."""
        return any(one.says in POSSIBLE for one in self.sent)


@dataclass(slots=True)
class Claim:
    """A claim that somebody received."""

    entry: Entry
    asked: int
    asked_at: int
    told: int
    any_task: bool

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.entry.priority, self.entry.run_at, self.entry.seq)


@dataclass(slots=True)
class Life:
    """Everything about one job."""

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
    denied: bool = False
    final: Entry | None = None
    held: Entry | None = None
    story: list[tuple[int, Entry]] = field(default_factory=list[tuple[int, Entry]])

    def life_of(self, fence: int) -> int | None:
        """In which life a claim was made, where anybody saw it."""
        for claim in self.claims:
            if claim.entry.fence == fence:
                return claim.entry.reset_count
        past = None if self.final is None else self.final.past
        return next((line.reset_count for line in past or () if line.fence == fence), None)

    @property
    def may_be_gone(self) -> bool:
        """Somebody deleted it, or its end may have removed it."""
        return any(one.entry.what == "delete" and one.says in POSSIBLE for one in self.changes) or any(
            end.entry.what == "removes" and end.possible for end in self.ends.values()
        )

    @property
    def reborn(self) -> bool:
        """It may have been removed while its own enqueue was still being repeated, and so have been made anew.

        Then there are two jobs of one id: fences begin again, and no rule can tell them apart.
        """
        return len(self.inserts) > 1 and self.may_be_gone


@dataclass(slots=True)
class Renewed:
    """A heartbeat that was answered."""

    asked_at: int
    told: int
    lease: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run can be held to."""

    drained: bool = True
    """It went on without faults until nothing was left to do."""
    store_time: bool = True
    """The store's wall clock was one clock: false on SQLite where processes had wrong ones."""
    runs: bool = True
    """The jobs' own code journals that it began and ended."""
    everybody: bool = True
    """Everybody who writes is recorded: false where a server of ours sweeps, too."""
    deletes: bool = True
    """People delete jobs: false where a job that was acknowledged may be removed by nobody."""
    locks: bool = True
    """An ask under way may hide jobs from others (rows that are locked): false where each is one atomic step."""


@dataclass(slots=True)
class History:
    """A whole run."""

    terms: Terms
    lives: dict[str, Life] = field(default_factory=dict[str, Life])
    heartbeats: dict[str, list[Renewed]] = field(default_factory=dict[str, list[Renewed]])
    """By holder, in the order of their answers."""
    gone: dict[str, int] = field(default_factory=dict[str, int])
    """Holders of which somebody said that they are gone, and where first."""
    unanswered: list[int] = field(default_factory=list[int])
    """Where asks stand that took nobody knows what, and may be under way for ever."""
    judged: int = 0
    """Claims that were held to the order of their queue."""
    left: list[Entry] = field(default_factory=list[Entry])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    length: int = 0

    def life(self, job: str) -> Life:
        found = self.lives.get(job)
        if found is None:
            found = self.lives[job] = Life(job, self)
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


def understand(entries: Iterable[Entry], terms: Terms) -> History:
    """Read a journal from its beginning to its end."""
    history = History(terms)
    calls: dict[str, _Call] = {}
    heartbeats: dict[str, Entry] = {}
    place = 0
    for place, entry in enumerate(entries):
        event = entry.event
        history.counts[event] = history.counts.get(event, 0) + 1
        if event == "told":
            if (heartbeat := heartbeats.pop(entry.call, None)) is not None:
                history.heartbeats.setdefault(heartbeat.holder, []).append(
                    Renewed(heartbeat.at, place, heartbeat.lease)
                )
            elif (call := calls.get(entry.call)) is not None:
                _told(history, call, entry, place)
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
            life = history.life(entry.job)
            life.story.append((place, entry))
            _of_job(life, entry, place, calls)
    history.length = place + 1
    history.unanswered += [call.asked for call in calls.values() if call.asks]
    return history


def _call(calls: dict[str, _Call], entry: Entry, place: int) -> _Call:
    found = calls.get(entry.call)
    if found is None:
        found = calls[entry.call] = _Call(place, entry.at)
    return found


def _of_job(life: Life, entry: Entry, place: int, calls: dict[str, _Call]) -> None:
    event = entry.event
    if event == "insert":
        asked = Asked(entry, place)
        _call(calls, entry, place).inserts.append(asked)
        life.inserts.append(asked)
    elif event == "settle":
        asked = Asked(entry, place)
        _call(calls, entry, place).settles.append(asked)
        if entry.nonce in life.ends:
            life.ends[entry.nonce].sent.append(asked)
        else:
            life.ends[entry.nonce] = End([asked])
    elif event == "change":
        asked = Asked(entry, place)
        _call(calls, entry, place).changes.append(asked)
        life.changes.append(asked)
    elif event == "note":
        asked = Asked(entry, place)
        _call(calls, entry, place).notes.append(asked)
        life.notes.append(asked)
    elif event == "claimed":
        call = _call(calls, entry, place)
        call.asks = 0  # it was answered
        life.claims.append(Claim(entry, call.asked, call.asked_at, place, call.any_task))
    elif event == "acked":
        life.acks.append(entry)
    elif event == "denied":
        life.denied = True
    elif event == "began":
        life.began.append(entry)
    elif event == "ran":
        life.ran.add(entry.fence)
    elif event == "got":
        life.got.append(entry)
    elif event == "final":
        life.final = entry
    elif event == "held":
        life.held = entry


def _told(history: History, call: _Call, entry: Entry, place: int) -> None:
    if entry.says != "ok":
        says = "failed" if entry.says == "failed" else "unknown"
        for one in (*call.inserts, *call.notes, *call.settles, *call.changes):
            one.says, one.told, one.told_at = says, place, entry.at
        if call.asks and says == "unknown":
            # Nobody waits any more, but what was sent may still be on its way.
            history.unanswered.append(call.asked)
        return
    call.asks = 0
    for one, answer in zip(call.inserts, entry.inserts or (), strict=False):
        outcome, _, id = answer.partition(" ")
        one.says = "ok" if outcome == "created" and id == one.entry.job else "no"
        one.told, one.told_at = place, entry.at
    for asked, answers in ((call.notes, entry.notes), (call.settles, entry.settles), (call.changes, entry.changes)):
        for one, yes in zip(asked, answers or (), strict=False):
            one.says, one.told, one.told_at = "ok" if yes else "no", place, entry.at


def ended(life: Life) -> bool:
    """Whether the store has it in a terminal state."""
    return life.final is not None and life.final.state in TERMINAL
