"""A plan: who takes part in a schedule, what they do and what goes wrong; small enough to print."""

from __future__ import annotations

import msgspec

PLACES = ("server", "bucket")
KINDS = ("ok", "slow", "fails", "snoozes", "discards", "times_out", "checkpoints", "blocks")

ONCE = ("queued", "live", "window", "debounce")


class Rates(msgspec.Struct, frozen=True):
    """How many of all calls end in which bad way."""

    refused: float = 0.0
    """Nothing is sent, and the caller gets an error."""
    lost: float = 0.0
    """The request never arrives; the caller cannot know."""
    unanswered: float = 0.0
    """It is done, and the answer never arrives."""
    late: float = 0.0
    """It arrives when the caller has given up, perhaps after its repetition."""
    slow: float = 0.0
    """Single messages that take up to two seconds."""
    cut: float = 0.0
    """In a bucket: a body that ends too soon."""
    conflict: float = 0.0
    """In a bucket: a put that did nothing, and answers that there is such an object."""
    exists: float = 0.0
    """In a bucket: a put that created its object, and answers that there was one."""

    def fates(self) -> tuple[tuple[str, float], ...]:
        return (
            ("refused", self.refused),
            ("lost", self.lost),
            ("unanswered", self.unanswered),
            ("late", self.late),
        )


class PlannedLimit(msgspec.Struct, frozen=True):
    """A limit key, and how much of it there may be."""

    name: str
    running: int = 0
    rate: str = ""
    burst: int = 1
    weight: int = 0


class PlannedJob(msgspec.Struct, frozen=True):
    """One job: when it is enqueued, how, and what it does."""

    at: float
    by: int
    kind: str = "ok"
    priority: int = 0
    delay: float = 0.0
    key: str = ""
    own_id: bool = False
    max_attempts: int = 0
    many: int = 1
    """So many in one call."""
    limit: PlannedLimit | None = None
    signal: str = ""
    """What a job in steps waits for."""
    unique: str = ""
    """For how long its key stands for one job, where not for good: one of ONCE."""


class PlannedSignal(msgspec.Struct, frozen=True):
    """One signal: when it is sent, by whom, and its name."""

    at: float
    by: int
    name: str


class PlannedFlow(msgspec.Struct, frozen=True):
    """One flow: when it is enqueued, and its jobs in their order."""

    at: float
    by: int
    jobs: tuple[FlowJob, ...]
    on_end: bool = False
    """One more job runs when all have ended."""


class FlowJob(msgspec.Struct, frozen=True):
    """A job of a flow: what it does, those it comes after, and what it does when one of them dies."""

    kind: str
    after: tuple[int, ...] = ()
    on_dead: str = "fail"


class Fault(msgspec.Struct, frozen=True):
    """One thing that goes wrong: `kill` (at a step of the process, or at a time), `stop`, `restart`, `term`."""

    what: str
    who: int = 0
    at: float = 0.0
    step: int = -1
    seconds: float = 0.0


class Deed(msgspec.Struct, frozen=True):
    """What an operator does, to a job drawn when the time comes: cancel, retry, delete, by_hand, vanish; or to all:
    pause the queue, hold the task, hold_some of its jobs, and resume a while later."""

    what: str
    at: float


class Plan(msgspec.Struct, frozen=True):
    """Everything that a schedule depends on."""

    seed: int
    chance: int
    producers: int
    workers: int
    slots: int
    skews: tuple[float, ...]
    jobs: tuple[PlannedJob, ...]
    faults: tuple[Fault, ...]
    deeds: tuple[Deed, ...]
    rates: Rates
    deaf: bool
    poisonous: bool
    """One job kills its process; then faults are few, so that nobody else may end badly."""
    calm_at: float
    place: str = "server"
    """Where the jobs are: a `server`, which is the reference store, or a `bucket`, with the bucket store's own code."""
    flows: tuple[PlannedFlow, ...] = ()
    signals: tuple[PlannedSignal, ...] = ()
