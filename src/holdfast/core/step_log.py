"""What a job remembers of itself: its steps, and its own checkpoint, in the one place that every store keeps for it.

Without steps the stored checkpoint is the user's value and nothing else. With steps it is an envelope around it:
`{"$steps": […], "value": …}`. Whoever shows or changes a checkpoint reads it here.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

_MARK = b'{"$steps":'
NULL = Raw(b"null")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step that is finished, or that the job waits in."""

    kind: str
    """`step`, `sleep` or `signal`."""
    name: str
    """A sleep's is its number."""
    at: int | None = None
    """When it was finished. A sleep has none: it is over when its time has come."""
    until: int | None = None
    """Until when it sleeps, or waits at the most."""
    late: bool = False
    """What it waited for had not come in time."""
    result: Raw = NULL

    def done(self, now: int) -> bool:
        """Whether the job goes on behind it."""
        return self.at is not None or (self.kind == "sleep" and self.until is not None and self.until <= now)


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"steps": "$steps"}):
    """All that a job remembers; the steps in the order in which they were begun."""

    steps: tuple[Step, ...]
    value: Raw | UnsetType = UNSET
    """The user's own checkpoint."""

    def find(self, kind: str, name: str) -> Step | None:
        """A step, if there is one of this kind and name."""
        return next((step for step in self.steps if step.kind == kind and step.name == name), None)

    def with_step(self, step: Step) -> Memory:
        """The same with this step, in the place of the one that has its name."""
        known = self.find(step.kind, step.name)
        others = (*self.steps, step) if known is None else (step if one is known else one for one in self.steps)
        return Memory(tuple(others), self.value)

    def with_value(self, value: bytes) -> Memory:
        """The same with another checkpoint of the user's."""
        return Memory(self.steps, Raw(value))


_decode = msgspec.json.Decoder(Memory).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = Memory(())


def read(checkpoint: bytes | None) -> Memory:
    """What a stored checkpoint says."""
    if checkpoint is None:
        return _NOTHING
    if checkpoint.startswith(_MARK):
        try:
            return _decode(checkpoint)
        except (ValueError, RecursionError):
            pass  # the user's own, by hand
    return Memory((), Raw(checkpoint))


def write(memory: Memory) -> bytes | None:
    """The same for a store."""
    value = None if memory.value is UNSET else bytes(memory.value)
    if memory.steps or (value is not None and value.startswith(_MARK)):
        return _encode(memory)
    return value


def answered(checkpoint: bytes | None, signal: str, value: bytes | None, now: int) -> bytes | None:
    """The checkpoint of a job that waited for a signal, which has come; None: it has not come in time."""
    memory = read(checkpoint)
    step = memory.find("signal", signal) or Step("signal", signal)
    result = NULL if value is None else Raw(value)
    return write(memory.with_step(msgspec.structs.replace(step, at=now, late=value is None, result=result)))


def in_next_life(checkpoint: bytes | None, *, anew: bool) -> bytes | None:
    """What an ended job remembers when it is run again: what it had finished and slept through, or no step (`anew`).

    What had not come in time is waited for again.
    """
    memory = read(checkpoint)
    kept = [step for step in memory.steps if step.kind == "sleep" or (step.at is not None and not step.late)]
    return write(Memory(() if anew else tuple(kept), memory.value))
