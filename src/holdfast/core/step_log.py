"""The stored progress of a job: its steps and its own checkpoint, in the one checkpoint field of every store.

Without steps the stored checkpoint is the user's value and nothing else. With steps it is an envelope around it:
`{"$steps": […], "value": …}`. All code that shows or changes a checkpoint uses this module.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

_MARK = b'{"$steps":'
NULL = Raw(b"null")


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step that is finished, or in which the job is suspended."""

    kind: str
    """`step`, `sleep` or `signal`."""
    name: str
    """A sleep is named by its number."""
    at: int | None = None
    """When it was finished. None for a sleep: it ends at `until`."""
    until: int | None = None
    """The end of the sleep, or of the timeout."""
    late: bool = False
    """The signal did not arrive before the timeout."""
    result: Raw = NULL

    def done(self, now: int) -> bool:
        """Whether the job resumes after it."""
        return self.at is not None or (self.kind == "sleep" and self.until is not None and self.until <= now)


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"steps": "$steps"}):
    """The steps, in the order in which they began, and the user's checkpoint."""

    steps: tuple[Step, ...]
    value: Raw | UnsetType = UNSET
    """The user's own checkpoint."""

    def find(self, kind: str, name: str) -> Step | None:
        return next((step for step in self.steps if step.kind == kind and step.name == name), None)

    def with_step(self, step: Step) -> Memory:
        """A copy with this step, in the place of the one with the same name."""
        known = self.find(step.kind, step.name)
        others = (*self.steps, step) if known is None else (step if one is known else one for one in self.steps)
        return Memory(tuple(others), self.value)

    def with_value(self, value: bytes) -> Memory:
        return Memory(self.steps, Raw(value))


_decode = msgspec.json.Decoder(Memory).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = Memory(())


def read(checkpoint: bytes | None) -> Memory:
    if checkpoint is None:
        return _NOTHING
    if checkpoint.startswith(_MARK):
        try:
            return _decode(checkpoint)
        except (ValueError, RecursionError):
            pass  # it is the user's own value
    return Memory((), Raw(checkpoint))


def write(memory: Memory) -> bytes | None:
    value = None if memory.value is UNSET else bytes(memory.value)
    if memory.steps or (value is not None and value.startswith(_MARK)):
        return _encode(memory)
    return value


def answered(checkpoint: bytes | None, signal: str, value: bytes | None, now: int) -> bytes | None:
    """The checkpoint of a job whose awaited signal has arrived; value None: it did not arrive in time."""
    memory = read(checkpoint)
    step = memory.find("signal", signal) or Step("signal", signal)
    result = NULL if value is None else Raw(value)
    return write(memory.with_step(msgspec.structs.replace(step, at=now, late=value is None, result=result)))


def after_reset(checkpoint: bytes | None, *, without_steps: bool) -> bytes | None:
    """The checkpoint of an ended job that is run again: with finished steps and sleeps, or `without_steps`.

    Signals that timed out are waited for again.
    """
    memory = read(checkpoint)
    kept = [step for step in memory.steps if step.kind == "sleep" or (step.at is not None and not step.late)]
    return write(Memory(() if without_steps else tuple(kept), memory.value))
