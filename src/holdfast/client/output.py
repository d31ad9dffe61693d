"""Follows the output of a job, read from the store, so from any machine that reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ..core.job import TERMINAL
from ..core.operations import Printed
from .handles import Handles

OUTPUT_EVERY = 0.2
"""Seconds between two reads for more output."""


async def follow_output(handles: Handles, id: str, *, follow: bool) -> AsyncIterator[Printed]:
    """The stored output, chunk by chunk; with `follow`, until the job has ended."""
    position = 0
    while True:
        ended = not follow or (await handles.record(id)).state in TERMINAL
        pieces = await handles.output(id, position)
        for piece in pieces:
            seen = max(0, position - piece.position)
            yield Printed(piece.position + seen, piece.fence, piece.data[seen:]) if seen else piece
            position = piece.position + len(piece.data)
        if not pieces and ended:
            return
        if not pieces:
            await asyncio.sleep(OUTPUT_EVERY)
