"""Write requests of callers to the engine."""

from __future__ import annotations

import asyncio
from typing import Any

from ...core.operations import Holder
from ..protocol import Batch
from .log_format import Mark, Put, Segment, Tidy, Watched
from .replica import Done


class WriteRequest:
    """The operations that one caller wants written to the log, and the future of their answers."""

    def __init__(self, batch: Batch | None = None, **parts: Any) -> None:
        self.batch = batch or Batch()
        self.heartbeats: list[Holder] = parts.get("heartbeats", [])
        self.leaves: list[str] = parts.get("leaves", [])
        self.records: list[Put] = parts.get("records", [])
        self.tidies: list[Tidy] = parts.get("tidies", [])
        self.watches: list[Watched] = parts.get("watches", [])
        self.segments: list[Segment] = parts.get("segments", [])
        self.marks: list[Mark] = parts.get("marks", [])
        self.future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()

    @property
    def only_asks(self) -> bool:
        batch = self.batch
        others = (batch.inserts, batch.notes, batch.settles, batch.changes)
        more = (self.heartbeats, self.leaves, self.records, self.tidies, self.watches, self.segments, self.marks)
        return bool(batch.asks) and not any(others) and not any(more)

    def __len__(self) -> int:
        batch = self.batch
        return len(batch.inserts) + len(batch.notes) + len(batch.settles) + len(batch.changes) + 1
