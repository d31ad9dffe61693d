"""The server's own maintenance: workers that reach their store through it leave lost leases, retention and flows to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..worker.dependency_release import DependencyRelease
from ..worker.maintenance import Maintenance

if TYPE_CHECKING:
    from ..parts import Parts

FIRST_LOOK = 5.0
"""Seconds before the first look for lost claims. While the server was away nobody could renew a lease through it:
whoever lives beats again within a second or two of its return, and must not be taken for dead before."""


@asynccontextmanager
async def sweeping(parts: Parts, *, first_look: float = FIRST_LOOK) -> AsyncGenerator[None]:
    """Sweep for as long as the block lasts; the app is open."""
    session = parts.session
    poll = session.settings.poll
    maintenance = Maintenance(session, parts.claims, poll, first_look)
    freeing = DependencyRelease(session, parts.flows.release(session), poll)
    try:
        yield
    finally:
        maintenance.stop()
        await freeing.stop()
