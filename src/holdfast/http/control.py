"""The route to control workers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..client.control import MAX_TARGETS, ControlReply, Request
from ..core.errors import InvalidJob
from ..core.settings import parse
from .call import Answer, Call, json
from .endpoint import Endpoint
from .limits import MAX_CLAIM_WAIT
from .problems import OUTCOME_UNKNOWN, WORKER_NOT_FOUND
from .shapes import Body, Key, Name


class ControlRequest(Body, kw_only=True):
    """What live workers shall do. Each of `workers`, `host` and `version` that is given must match."""

    action: Literal["quiet", "resume", "drain", "stop", "restart", "concurrency", "stacks"]
    workers: Annotated[list[Key], Meta(max_length=MAX_TARGETS)] | None = None
    """Ids of workers."""
    host: Name | None = None
    """All workers of this node."""
    version: Name | None = None
    """All workers with this release of the application, or version of Holdfast."""
    all_workers: bool = False
    size: int | None = None
    """The new concurrency, for the action `concurrency`."""
    now: bool = False
    """For the action `stop`: release running jobs at once."""
    timeout: Annotated[float, Meta(ge=0, le=MAX_CLAIM_WAIT)] | None = None
    """Seconds to wait for the answers; null: until after the next heartbeat of each worker."""


class ControlOut(msgspec.Struct):
    """One answer for each worker, by worker id."""

    replies: list[ControlReply]


async def control(call: Call, body: ControlRequest) -> Answer:
    """Control live workers, and wait for their answers. A worker that did not answer has an `error`."""
    if body.action == "concurrency" and body.size is None:
        raise InvalidJob("no request was sent: the action `concurrency` needs `size`, the new number of slots")
    if body.action != "concurrency" and body.size is not None:
        raise InvalidJob("no request was sent: `size` can be given only with the action `concurrency`")
    size = None if body.size is None else parse("concurrency", body.size)
    request = Request(body.action, size=size, now=body.now and body.action == "stop")
    replies = await call.app.workers.send(
        request,
        body.workers or (),
        host=body.host,
        version=body.version,
        all_workers=body.all_workers,
        timeout=body.timeout,
    )
    return json(ControlOut(replies))


def endpoints() -> list[Endpoint]:
    refusals = (WORKER_NOT_FOUND, OUTCOME_UNKNOWN)
    return [Endpoint("POST", "/v1/workers/control", "operate", control, {200: ControlOut}, refusals)]
