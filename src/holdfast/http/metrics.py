"""`GET /metrics`: what this server has seen, and what the store holds, for Prometheus."""

from __future__ import annotations

from ..observe.metrics import CONTENT_TYPE
from .call import Answer, Call


async def metrics(call: Call) -> Answer:
    """Metrics in the text format of Prometheus."""
    service = call.service
    return Answer(200, service.metrics.page(await service.depths.look()), CONTENT_TYPE)
