"""Hours of live updates, and of an idle tab: memory, nodes and listeners of the page do not grow."""

from __future__ import annotations

import asyncio
import os

import pytest

from holdfast.app import parts_of
from holdfast.http import sse
from support.browser import look
from support.scene import a_few

UPDATES = int(os.environ.get("HOLDFAST_UPDATES", "30"))
"""Refreshes of the page; at most 3,600 per hour."""
WARM = 15
HOURS = float(os.environ.get("HOLDFAST_HOURS", "8"))
"""Of an idle tab, by the clock of the page."""
FASTER = """
  const now = performance.now.bind(performance), timeout = setTimeout, interval = setInterval;
  performance.now = () => now() * 60;
  window.setTimeout = (f, ms, ...rest) => timeout(f, ms < 5000 ? ms / 60 : ms, ...rest); // not those of requests
  window.setInterval = (f, ms, ...rest) => interval(f, ms / 60, ...rest);
"""
MIB = 1 << 20


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", ["#/jobs", "#/", "#/queues"])
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_live_updates_do_not_fill_the_memory(lab, make_page, where, monkeypatch):
    monkeypatch.setattr(sse, "COMMENT_EVERY", 2 / 60)
    page = make_page()
    page.add_init_script(FASTER)
    lab.start_worker("default", concurrency=4)
    over = asyncio.Event()

    async def busy():
        task, number = parts_of(lab.app).registry.tasks["resize_image"], 0
        while not over.is_set():
            await lab.app.enqueue_many([lab.app.call(task, f"{number}-{n}.raw", n) for n in range(5)])
            number += 1
            await asyncio.sleep(0.2)

    feeding = asyncio.run_coroutine_threadsafe(busy(), lab._loop)
    answered = 0

    def count(response):
        nonlocal answered
        answered += response.url.partition("?")[0].endswith("/v1/stats")

    page.on("response", count)
    look(page, lab, where)
    measured = metering(page)

    def wait_for(updates):
        while answered < updates:
            page.wait_for_timeout(50)
        return measured()

    before = wait_for(WARM)
    after = wait_for(WARM + UPDATES)
    over.set()
    feeding.result(10)
    print(f"{where} after {WARM} refreshes {before}, after {UPDATES} more {after}")
    assert_steady(before, after)


def metering(page):
    """A function that returns heap, nodes and listeners of the page after a garbage collection."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")

    def measured():
        for _ in range(3):
            devtools.send("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
        return {name: metrics[name] for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")}

    return measured


def assert_steady(before, after):
    assert after["JSHeapUsedSize"] < before["JSHeapUsedSize"] * 1.1 + MIB
    assert after["Nodes"] < before["Nodes"] * 1.2 + 300
    assert after["JSEventListeners"] < before["JSEventListeners"] * 1.2 + 60


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", ["#/", "#/queues"])
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_eight_hours_do_not_fill_the_memory(lab, make_page, where):
    lab.do(a_few(lab.app))
    page = make_page()
    page.clock.install()
    look(page, lab, where)
    measured = metering(page)

    def stay(hours):
        """Step the clock of the page by hours, with a refresh every ten minutes."""
        for _ in range(int(hours * 6)):
            page.clock.fast_forward(597_000)
            with page.expect_response(lambda one: one.url.endswith("/v1/stats")):
                page.clock.run_for(3_000)

    stay(1)
    started = page.evaluate("Date.now()")
    before = measured()
    stay(HOURS)
    after = measured()
    print(f"{where} before {before}, after eight hours {after}")
    assert page.evaluate("Date.now()") - started >= HOURS * 3600 * 1000
    assert_steady(before, after)
