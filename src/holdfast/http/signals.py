"""The route to send signals to waiting jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from .call import Answer, Call, json
from .endpoint import Endpoint
from .problems import OUTCOME_UNKNOWN
from .shapes import Body


class NewSignal(Body):
    """The value passed to the waiting jobs."""

    value: Any = None


class SignalOut(msgspec.Struct):
    """A signal that was sent."""

    name: str
    woken: int
    """Jobs that were waiting for it. Later waits find it for as long as keys are remembered."""


async def send(call: Call, name: str, body: NewSignal) -> Answer:
    """Send a signal: wake every job that waits for it, now or later. Sending it again replaces its value."""
    return json(SignalOut(name, await call.app.signal(name, body.value)))


def endpoints() -> list[Endpoint]:
    return [Endpoint("POST", "/v1/signals/{name}", "submit", send, {200: SignalOut}, (OUTCOME_UNKNOWN,))]
