"""The tasks of a graph of jobs: each adds up its parents' results, and may die by chance while that is enabled."""

from __future__ import annotations

import random
from pathlib import Path

from holdfast import Context, Discard, Holdfast

from .journal import Journal


def mended(journal: Journal) -> Path:
    """Once this file is there, no job dies for good any more."""
    return Path(journal.path).with_name("mended")


def add_to(app: Holdfast, journal: Journal) -> None:
    chance = random.Random()

    @app.task(name="node")
    async def node(ctx: Context, parents: list[int], doomed: bool) -> int:
        journal.write("start", ctx.job.id, fence=ctx.fence)
        if chance.random() < 0.05:
            raise RuntimeError("by chance")
        if doomed and not mended(journal).exists():
            raise Discard("doomed")
        journal.write("end", ctx.job.id, fence=ctx.fence)
        return sum(parents) % 1_000_003 + 1
