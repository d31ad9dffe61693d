"""What a job waits for besides its due time: a value, and its text form in stores.

Only `write` and `read` know the text form. Stores index it, and SQL builds the text of a full limit from
`LIMIT_PREFIX`; all other code compares values.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import msgspec

Kind = Literal["limit", "signal", "dependency", "flow_start", "flow", "pause", "worker", "unknown"]
"""`limit`: its limit key is full. `signal`: a signal. `dependency`: the end of another job. `flow_start`: the start of
its flow. `flow`: the end of all other jobs of its flow. `pause`: the end of its task's pause. `worker`: a worker
that knows its task and arguments. `unknown`: the stored text cannot be parsed, so only an operator can end the wait."""
_KINDS = frozenset(get_args(Kind)) - {"unknown"}
_SHOWN = {
    "limit": "limit", "signal": "signal", "dependency": "job", "flow_start": "the start of flow",
    "flow": "all jobs of flow", "pause": "the end of the pause of", "worker": "a worker that is",
    "unknown": "something unknown:",
}  # fmt: skip
LIMIT_PREFIX = "limit:"
"""Prefix of the text of a full limit; the name of its key follows."""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """What a job waits for: kind and name."""

    kind: Kind
    name: str
    """The name of a limit key, signal, job, flow or pause; for an unknown kind, the whole stored text."""

    def __str__(self) -> str:
        return f"{_SHOWN[self.kind]} {self.name}"


COMPATIBLE = Waiting("worker", "compatible")
"""The wait of every refused job: one value, so that one lookup finds them all."""


def write(waiting: Waiting | None) -> str | None:
    """The text form that stores keep."""
    if waiting is None:
        return None
    return waiting.name if waiting.kind == "unknown" else f"{waiting.kind}:{waiting.name}"


def read(text: str | None) -> Waiting | None:
    """Parses a stored text; of kind `unknown` if it cannot be parsed, which `damage.py` reports."""
    if text is None:
        return None
    kind, _, name = text.partition(":")
    return Waiting(cast("Kind", kind), name) if name and kind in _KINDS else Waiting("unknown", text)


def end_of(id: str) -> Waiting:
    """The wait for the end of a job."""
    return Waiting("dependency", id)


def beginning_of(flow: str) -> Waiting:
    """The wait for the start of a flow."""
    return Waiting("flow_start", flow)


def all_of(flow: str) -> Waiting:
    """The wait for the end of all other jobs of a flow."""
    return Waiting("flow", flow)
