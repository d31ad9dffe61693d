"""How often a store is called for three jobs: counted on the memory store, with a real app and a real worker.

Counted are the calls of every coroutine of the `Store` protocol but `open` and `close`, through the app's own store
object; the heartbeat's thread has a store of its own, which is not counted. The app is open before the count begins.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast import Flow, Holdfast, Worker
from holdfast.store.protocol import Store

COUNTED = sorted(
    name
    for name, method in vars(Store).items()
    if inspect.iscoroutinefunction(method) and name not in ("open", "close")
)


def counting(store: Any, counts: Counter[str]) -> Any:
    """The store, with its methods wrapped."""

    def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return await method(*args, **kwargs)

        return call

    for name in COUNTED:
        setattr(store, name, counted(name, getattr(store, name)))
    return store


async def _calls(enqueue: Callable[[Holdfast, Any], Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Calls by method to enqueue, and to run until nothing is ready any more."""
    counts: Counter[str] = Counter()
    app = Holdfast(counting(_memory_store(), counts))

    async def one(*_: Any) -> int:
        return 1

    task = app.task(one, name="one")
    async with app:
        counts.clear()
        await enqueue(app, task)
        enqueued = dict(counts)
        counts.clear()
        await Worker(app, until_idle=True).run()
        ran = dict(counts)
        ended = (await app.stats()).counts
        assert ended["succeeded"] == sum(ended.values()), f"not all jobs have succeeded: {ended}"
    return enqueued, ran


def _memory_store() -> Any:
    try:
        from holdfast.store.reference.memory import MemoryStore
    except ImportError:  # the layout before there were folders
        from holdfast.store.memory import MemoryStore
    return MemoryStore()


async def _joined(app: Holdfast, task: Any) -> None:
    flow = Flow()
    flow.add(task, flow.add(task).result, flow.add(task).result)
    await app.enqueue_flow(flow)


async def _chained(app: Holdfast, task: Any) -> None:
    flow = Flow()
    flow.chain(task, task, task)
    await app.enqueue_flow(flow)


async def _plain(app: Holdfast, task: Any) -> None:
    await app.enqueue_many([task.call() for _ in range(3)])


async def _nothing(app: Holdfast, task: Any) -> None:
    pass


def calls() -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """By what was enqueued: two jobs and a third that takes their results, a chain of three, three plain jobs, none."""
    cases = {"joined": _joined, "chained": _chained, "plain": _plain, "nothing": _nothing}
    return {name: asyncio.run(_calls(enqueue)) for name, enqueue in cases.items()}
