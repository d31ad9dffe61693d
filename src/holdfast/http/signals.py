"""Signals over HTTP: what jobs wait for."""

from __future__ import annotations

from typing import Any

import msgspec

from .call import Answer, Call, json
from .endpoint import Endpoint
from .problems import OUTCOME_UNKNOWN
from .shapes import Body


class NewSignal(Body):
    """What the jobs that wait for it get."""

    value: Any = None


class SignalOut(msgspec.Struct):
    """A signal that was sent."""

    name: str
    woken: int
    """Jobs that waited for it. Those that wait later find it for as long as keys are remembered."""


async def send(call: Call, name: str, body: NewSignal) -> Answer:
    """Wake every job that waits for this signal, now or later. Sent again, it has the newer value."""
    return json(SignalOut(name, await call.app.signal(name, body.value)))


def endpoints() -> list[Endpoint]:
    """Their part of the route table."""
    return [Endpoint("POST", "/v1/signals/{name}", "submit", send, {200: SignalOut}, problems=(OUTCOME_UNKNOWN,))]
