"""What a job waits for besides its time: a value, and the only text form that stores keep of it.

`write` and `read` are the only places that know the text. Stores index it, and SQL builds that of a full limit from
`LIMIT_PREFIX`; everything else compares values.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import msgspec

Kind = Literal["limit", "signal", "dependency", "flow_start", "flow", "pause", "unknown"]
"""`limit`: its limit key is full. `signal`: a signal to be sent. `dependency`: the end of another job. `flow_start`:
the start of its flow. `flow`: the end of all other jobs of its flow. `pause`: the end of its task's pause. `unknown`:
the stored text cannot be parsed, so nothing ends this wait but an operator."""
_KINDS = frozenset(get_args(Kind)) - {"unknown"}
_SHOWN = {
    "limit": "limit", "signal": "signal", "dependency": "job", "flow_start": "the start of flow",
    "flow": "all jobs of flow", "pause": "the end of the pause of", "unknown": "something unknown:",
}  # fmt: skip
LIMIT_PREFIX = "limit:"
"""The text of a full limit is this, and the name of its key."""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """What a job waits for: which kind of thing, and which one."""

    kind: Kind
    name: str
    """Of a limit key, signal, job, flow or pause; of an unknown kind, all of the stored text."""

    def __str__(self) -> str:
        return f"{_SHOWN[self.kind]} {self.name}"


def write(waiting: Waiting | None) -> str | None:
    """The text that stores keep."""
    if waiting is None:
        return None
    return waiting.name if waiting.kind == "unknown" else f"{waiting.kind}:{waiting.name}"


def read(text: str | None) -> Waiting | None:
    """What a stored text says; of kind `unknown` where it cannot be parsed, which `damage.py` reports."""
    if text is None:
        return None
    kind, _, name = text.partition(":")
    return Waiting(cast("Kind", kind), name) if name and kind in _KINDS else Waiting("unknown", text)


def end_of(id: str) -> Waiting:
    """What a job waits for that comes after another."""
    return Waiting("dependency", id)


def beginning_of(flow: str) -> Waiting:
    """What the first jobs of a flow wait for."""
    return Waiting("flow_start", flow)


def all_of(flow: str) -> Waiting:
    """What a job waits for that comes after all others of its flow."""
    return Waiting("flow", flow)
