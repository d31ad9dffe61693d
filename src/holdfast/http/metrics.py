"""`GET /metrics`: Prometheus metrics of this server and its store."""

from __future__ import annotations

from ..observe.metrics import CONTENT_TYPE
from .call import Answer, Call


async def metrics(call: Call) -> Answer:
    """Metrics in the Prometheus text format."""
    service = call.service
    return Answer(200, service.metrics.page(await service.depths.read()), CONTENT_TYPE)
