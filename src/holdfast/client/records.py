"""Small shared records: settings, pauses, schedules, webhooks and flows store shared state there."""

from __future__ import annotations

from ..store.protocol import Versioned, records_of
from .runtime import Runtime, on_app_loop
from .session import Session


class Records:
    """The records of a store, by kind and name."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @on_app_loop
    async def all(self, session: Session, kind: str) -> dict[str, Versioned]:
        """The records of a kind, by name."""
        return await records_of(session.store, kind)

    @on_app_loop
    async def recent(self, session: Session, kind: str, max_age: float) -> dict[str, Versioned]:
        """The same, from a read of this process that is at most `max_age` seconds old."""
        return await session.watched.of(kind, max_age)

    @on_app_loop
    async def put(self, session: Session, kind: str, name: str, value: bytes | None, expect: int | None = None) -> bool:
        """Set one; see `Store.put_record`. This process sees a changed setting or webhook at once."""
        written = await session.store.put_record(kind, name, value, expect)
        if kind in ("config", session.feed.kind):
            await session.refresh_after_a_write()  # other processes see it within seconds
        return written

    @on_app_loop
    async def now(self, session: Session) -> int:
        """The store's own wall clock, in microseconds since 1970."""
        return await session.store.now()
