"""Many dead jobs, quickly."""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast, State
from holdfast.core.operations import Change, Patch
from support.inside import session_of


async def make_dead(app: Holdfast, count: int, **options: Any) -> list[str]:
    """Have this many jobs of the task `noop` die, by a change of their state alone."""
    ids: list[str] = []
    for start in range(0, count, 1000):
        handles = await app.enqueue_many([app.call("noop", **options)] * min(1000, count - start))
        new = [handle.id for handle in handles]
        dead = Patch(state=State.DEAD, attempt=1, error="boom", keep=None)
        assert all(await session_of(app).commit.change([Change(id, State.QUEUED, 0, dead) for id in new]))
        ids += new
    return ids
