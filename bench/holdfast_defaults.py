"""Two apps for workers at their defaults: one whose tasks are plain functions, and one whose tasks are all async."""

from __future__ import annotations

from holdfast import Holdfast

plain, asynchronous = Holdfast(), Holdfast()


@plain.task
def nothing_in_thread() -> int:
    return 1


@asynchronous.task
async def nothing() -> int:
    return 1
