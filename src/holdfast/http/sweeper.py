"""The server's maintenance: it handles expired leases, retention and flows for workers that use its store remotely."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..worker.dependency_release import DependencyRelease
from ..worker.maintenance import Maintenance

if TYPE_CHECKING:
    from ..parts import Parts

FIRST_SWEEP = 5.0
"""Seconds before the first sweep of expired leases: while the server was down, no worker could renew a lease through
it, and live workers need one or two seconds after its return."""


@asynccontextmanager
async def sweeping(parts: Parts, *, first_sweep: float = FIRST_SWEEP) -> AsyncGenerator[None]:
    """Sweep while the block runs; the app must be open."""
    session = parts.session
    poll = session.settings.poll
    maintenance = Maintenance(session, parts.claims, poll, first_sweep)
    release = DependencyRelease(session, parts.flows.release(session), poll)
    try:
        yield
    finally:
        maintenance.stop()
        await release.stop()
