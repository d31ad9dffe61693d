"""How a running job writes a note under its claim: on the app's loop, called from async code or from a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..core.errors import LeaseLost
from ..core.operations import Note

WriteNote = Callable[[Note], Awaitable[bool]]
"""Writes a note to the store; False if the claim has ended."""


async def save(write_note: WriteNote, note: Note) -> None:
    """Write a note. Raises LeaseLost if the claim has ended."""
    if not await write_note(note):
        raise LeaseLost(note.id, note.fence)


def stored(saving: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> Awaitable[None]:
    """Run `saving` on the loop: on that loop, return an awaitable; on any other thread, return after it is stored."""
    if on_loop(loop):
        return asyncio.ensure_future(saving)
    asyncio.run_coroutine_threadsafe(saving, loop).result()
    return _Done()


async def run_on(loop: asyncio.AbstractEventLoop, saving: Coroutine[Any, Any, None]) -> None:
    """Await `saving` on the loop that can write; a task in its own process runs on another one."""
    if on_loop(loop):
        await saving
    else:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(saving, loop))


def on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Done:
    """An awaitable that is already done."""

    def __await__(self) -> Any:
        return iter(())
