"""One parent with very many children, and a job behind all of them: each runs once, and none is read over and over."""

from __future__ import annotations

import os
import time

import pytest

from holdfast import Flow, Holdfast, State
from support.workers import working

CHILDREN = int(os.environ.get("HOLDFAST_MANY", "1000"))
"""100,000 is what the promise is held to."""


@pytest.mark.timeout(300 + CHILDREN / 20)
async def test_very_many_children_of_one_parent_run_and_then_what_comes_after_all(store_url):
    app = Holdfast(store_url, concurrency=100)
    ran = [0] * CHILDREN
    order: list[str] = []

    @app.task
    async def parent() -> str:
        order.append("parent")
        return "handed on"

    @app.task
    async def child(number: int, handed: str) -> None:
        assert handed == "handed on"
        if not any(ran):
            order.append("children")
        ran[number] += 1

    @app.task
    async def gather() -> None:
        order.append(f"after {sum(ran)}")

    flow = Flow("wide")
    first = flow.add(parent)
    children = [flow.add(child, number, first) for number in range(CHILDREN)]
    flow.add(gather).after(*children)
    flow.on_end(gather)
    async with app:
        begun, spent = time.monotonic(), time.process_time()
        handle = await app.enqueue_flow(flow)
        print(f"enqueued after {time.monotonic() - begun:.0f} s")
        async with working(app):
            status = await handle.wait()
        spent, took = time.process_time() - spent, time.monotonic() - begun
        print(f"{CHILDREN} children: {1000 * spent / CHILDREN:.2f} ms of CPU in this process each, {took:.0f} s in all")
        assert (status.state, status.counts) == (State.SUCCEEDED, {"succeeded": CHILDREN + 3})
    assert ran == [1] * CHILDREN
    assert order == ["parent", "children", *[f"after {CHILDREN}"] * 2]
