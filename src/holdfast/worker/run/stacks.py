"""Stacks of running code: threads, coroutines and asyncio tasks. Frames only, without the values of variables."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from . import explain

if TYPE_CHECKING:
    from .run import Run

MAX_FRAMES = 50
"""Frames of one stack, the innermost."""
MAX_AWAITED = 20
"""Tasks that one task waits for, through others or together, whose frames are shown."""
_WORKER = Path(__file__).parents[1]
Position = tuple[FrameType, int]


def of_run(run: Run) -> str | None:
    """The stack of a run as text: of its thread, or where its coroutine is suspended; None if it has none here."""
    return as_text(frames_of_run(run))


def of_call(frame: FrameType | None, task: asyncio.Task[Any] | None, *callers: CodeType) -> list[str]:
    """The frames of a job in the process of its own: inside of `callers`, or where its asyncio task is suspended.

    `frame`: where the thread of the job is. May be called from another thread.
    """
    if task is not None and not task.done() and asyncio.current_task(task.get_loop()) is None:
        return of_task(task)
    positions = list(traceback.walk_stack(frame))
    outer = next((at for at, (one, _) in enumerate(positions) if one.f_code in callers), len(positions))
    return _formatted(reversed(positions[:outer]))


def as_text(frames: list[str]) -> str | None:
    return "Stack of the task at that time (most recent call last):\n" + "".join(frames) if frames else None


def frames_of_run(run: Run) -> list[str]:
    """The same, one text for each frame."""
    if run.thread is not None:
        return of_thread(run.thread)
    if run.apart:
        return []
    return [] if (task := run.calling) is None else of_task(task)


def of_thread(ident: int) -> list[str]:
    """The frames of a thread, the outermost first, without those of the worker that called a task."""
    return _of_frame(frame_of(ident))


def of_threads() -> dict[int, list[str]]:
    """The frames of all threads, by their ident."""
    return {ident: _of_frame(frame) for ident, frame in _frames().items()}


def frame_of(ident: int | None) -> FrameType | None:
    """Where a thread is."""
    return None if ident is None else _frames().get(ident)


def _frames() -> dict[int, FrameType]:
    return sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  # the documented way


def _of_frame(frame: FrameType | None) -> list[str]:
    return [] if frame is None else _formatted(reversed(list(traceback.walk_stack(frame))))


def of_task(task: asyncio.Task[Any]) -> list[str]:
    """Where an asyncio task is suspended, and the tasks that it waits for. May be called from another thread."""
    return _formatted(_awaited(task, {task}))


def _awaited(task: asyncio.Task[Any], seen: set[asyncio.Task[Any]]) -> Iterator[Position]:
    yield from _suspended(task.get_coro())
    waiter: Any = getattr(task, "_fut_waiter", None)
    for one in (waiter, *getattr(waiter, "_children", ())):  # gather() waits for its children
        if isinstance(one, asyncio.Task) and not one.done() and one not in seen and len(seen) < MAX_AWAITED:  # pyright: ignore[reportUnknownArgumentType]
            seen.add(one)  # pyright: ignore[reportUnknownArgumentType]
            yield from _awaited(one, seen)  # pyright: ignore[reportUnknownArgumentType]


def _suspended(awaited: Any) -> Iterator[Position]:
    """The frames of a coroutine and of what it awaits."""
    while awaited is not None:
        for kind, inner in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            if (frame := getattr(awaited, f"{kind}_frame", None)) is not None:
                yield frame, frame.f_lineno
                awaited = getattr(awaited, inner)
                break
        else:
            return


def _formatted(positions: Iterable[Position]) -> list[str]:
    """The frames as in a traceback, without the worker's own before the first of another file."""
    found = list(positions)
    while found and _own(found[0][0].f_code.co_filename):
        del found[0]
    found = found[-MAX_FRAMES:]
    try:
        return traceback.StackSummary.extract(iter(found), capture_locals=False).format()
    except Exception:  # noqa: BLE001  # a loader of the user may raise anything instead of giving the source
        return [f'  File "{(code := one.f_code).co_filename}", line {line}, in {code.co_name}\n' for one, line in found]


def _own(file: str) -> bool:
    return _WORKER in Path(file).parents or explain.is_own(file) or file == threading.__file__
