"""`python -m bench.dashboard STORE …`: the dashboard's pages in a browser, over a million jobs in a thousand queues.

Jobs are inserted, claimed and settled through the store, in bulk; 200 workers hold 800 of them. Then `holdfast serve`
runs in a process of its own, and headless Chromium opens each page. Printed: the time from a click until the page is
shown, time and CPU of the server (with the database) for each request of the pages, and what an idle tab costs.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote, urlsplit

from holdfast import Flow, Holdfast
from holdfast.app import parts_of
from holdfast.core.clock import fresh_entropy
from holdfast.core.job import NewJob
from holdfast.core.lifecycle import Outcome, settle
from holdfast.core.operations import Ask, Holder
from holdfast.core.settings import Settings
from holdfast.store.protocol import Batch

from . import look
from .bulk import TRACEBACK, place
from .process import ROOT

STORES = ("sqlite", "postgres", "redis")
WORKERS, TASKS, GROUPS = 200, 20, 30
IDLE = 60.0
"""Seconds for which an idle tab is watched: the longest time between two refreshes of one."""
SHOWN_LIMIT, SERVER_LIMIT, REQUESTS_LIMIT, IDLE_LIMIT = 1.0, 0.2, 30, 3.0
"""Targets: seconds, seconds, requests a minute, per cent of a core."""
SHOWN = """(hash) => new Promise((done, fail) => {
  const began = performance.now(), before = document.querySelector(".page");
  if (location.hash === hash) return done(0);
  location.hash = hash;
  const look = () => {
    const page = document.querySelector(".page");
    const shown = page && page.querySelector("h1") && !page.querySelector(".loading");
    if (shown && page !== before)
      return requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
    if (performance.now() - began > 60000) return fail(new Error("not shown within 60 s"));
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""
"""A link sets the hash of the address as this does. The page is shown when it has been painted with its data."""
entropy = fresh_entropy()
RULES = Settings().rules


def worker(number: int) -> Holder:
    node, queues = f"node-{number // 8}.example", tuple(f"queue-{n:04}" for n in range(number, 1000, WORKERS))
    return Holder(
        f"{node}:{number}:bench", 7200.0, "worker", node, number, queues, (), 8, "0.1.0",
        int(time.time() * 1e6), release=f"2026.{number % 3}", memory=90_000_000,
    )  # fmt: skip


async def fill(url: str, jobs: int, queues: int) -> None:
    """Of each queue's jobs, 35 % have succeeded, 10 % are dead, 10 % are scheduled or blocked; the rest are queued."""
    async with Holdfast(url) as app:
        store = parts_of(app).runtime.session.store
        await app.stats()
        each, now = jobs // queues, int(time.time() * 1e6)
        claimer, later = Holder("bench:fill:1", 7200.0, "claim"), now + 86_400_000_000
        for number in range(queues):
            queue = f"queue-{number:04}"
            made = [_job(queue, number, n, later if n >= each * 9 // 10 else None) for n in range(each)]
            for at in range(0, each, 1000):
                await store.write(Batch(inserts=made[at : at + 1000]))
            asked = await store.write(Batch(asks=[Ask(claimer, (queue,), each * 45 // 100, entropy.token())]))
            ends = [
                settle(record, _outcome(number, n), RULES, nonce=entropy.token(), fraction=0.0)
                for n, record in enumerate(asked.asks[0].records)
            ]
            assert all((await store.write(Batch(settles=ends))).settles)
        await store.leave([claimer.id])
        for number in range(WORKERS):
            holder = worker(number)
            await store.heartbeat([holder])
            await store.write(Batch(asks=[Ask(holder, holder.queues, 4, entropy.token())]))
        await _more(app)


def _job(queue: str, number: int, n: int, run_at: int | None) -> NewJob:
    task = f"shop.orders.task_{(number + n) % TASKS}"
    payload = b'{"customer_id":%d,"path":"picture-%d-%d.raw","size":640}' % (n, number, n)
    id = entropy.uuid7(time.time_ns() // 1000)
    key = f"order-{number}-{n}" if n % 10 == 0 else None
    tags = ("bench",) if n % 50 == 0 else ()
    return NewJob(id, task, queue, payload, max_attempts=1, run_at=run_at, key=key, tags=tags)


def _outcome(number: int, n: int) -> Outcome:
    if n % 9 < 7:
        return Outcome.succeeded(b"null")
    kind = "abcdefghijklmnopqrstuvwxyzABCD"[(number * 7 + n) % GROUPS]
    return Outcome.failed(f"ValueError: order {number}{n} has no address {kind * 3}", TRACEBACK)


async def _more(app: Holdfast) -> None:
    """Flows, schedules and a pause."""

    @app.task(queue="queue-0001")
    async def step(n: int) -> None: ...

    for number in range(100):
        made = Flow(f"import {number}")
        first = [made.add(step, n) for n in range(20)]
        made.add(step, 99).after(*first)
        await app.enqueue_flow(made, id=f"flow-{number}")
    for number in range(50):
        await app.schedules.put(f"nightly-{number}", app.call(step, number), cron=f"{number} 3 * * *")
    await app.pause("queue-0002")


def cpu(*, browser: bool) -> float:
    """CPU seconds of what this process has started, so far: of the browser, or of the server and its database."""
    names = {pid: _name(pid) for pid in look.family(os.getpid())[1:]}
    return sum(
        look.cpu_seconds(pid) for pid, name in names.items() if name and name != "node" and browser == ("chrom" in name)
    )


def _name(pid: int) -> str:
    """The name of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def pages(job: str, fingerprint: str) -> dict[str, str]:
    now = datetime.now(UTC)
    span = "&".join(
        f"{name}={quote(at.isoformat(), safe='')}"
        for name, at in (("start", now - timedelta(minutes=10)), ("end", now))
    )
    return {
        "overview": "#/",
        "jobs": "#/jobs",
        "jobs, queued": "#/jobs?state=queued",
        "jobs, dead": "#/jobs?state=dead",
        "jobs, scheduled": "#/jobs?state=scheduled",
        "jobs, running": "#/jobs?state=running",
        "jobs, blocked": "#/jobs?state=blocked",
        "jobs, queued in a queue": "#/jobs?state=queued&queue=queue-0003",
        "jobs, dead in a queue": "#/jobs?state=dead&queue=queue-0003",
        "jobs, of a queue": "#/jobs?queue=queue-0500",
        "jobs, of a task": "#/jobs?type=shop.orders.task_7",
        "jobs, by an old id": f"#/jobs?text={job}",
        "jobs, by a key": "#/jobs?text=order-3-10",
        "jobs, by text": "#/jobs?text=picture-999-77.raw",
        "jobs, by a field": "#/jobs?text=args.customer_id%3A42",
        "job": f"#/jobs/{job}",
        "flows": "#/flows",
        "flow": "#/flows/flow-7",
        "queues": "#/queues",
        "queue": "#/queues/queue-0500",
        "schedules": "#/schedules",
        "workers": "#/workers",
        "dead letters": "#/dead",
        "errors": "#/errors",
        "error group": f"#/errors/{fingerprint}",
        "incident": f"#/incident?{span}",
        "audit log": "#/audit",
    }


async def samples(url: str) -> tuple[str, str]:
    """The id of the oldest job that can be found quickly, and the fingerprint of an error group."""
    async with Holdfast(url) as app:
        job = (await app.jobs(queue="queue-0000", limit=1)).jobs[0].id
        return job, (await app.errors.groups()).groups[0].fingerprint


@contextmanager
def serving(url: str) -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "tests"))
    from support.browser import Server

    with Server(url, HOLDFAST_LOG_LEVEL="WARNING") as server:
        yield server


def measure(url: str, repeats: int) -> bool:
    """Print the figures of a filled store; whether all targets are met."""
    job, fingerprint = asyncio.run(samples(url))
    with serving(url) as server:
        from support.browser import browser

        with browser() as chromium:
            page = chromium.new_page(viewport={"width": 1280, "height": 900})
            asked: dict[str, None] = {}
            page.on("request", lambda one: asked.setdefault(one.url) if "/v1/" in one.url else None)
            good = show_pages(page, server.address, pages(job, fingerprint), repeats)
            reads = [one for one in asked if "/v1/events" not in one]
            good &= ask_server(reads, repeats)
            good &= idle(page, server.address)
    return good


def show_pages(page: Any, address: str, where: dict[str, str], repeats: int) -> bool:
    page.goto(f"{address}")
    page.locator(".page h1").wait_for()
    page.evaluate(SHOWN, "#/audit")  # warms up files, connections and code
    took: dict[str, list[float]] = {name: [] for name in where}
    for _ in range(repeats):
        for name, target in where.items():
            page.evaluate(SHOWN, "#/schedules" if name == "audit log" else "#/audit")
            took[name].append(page.evaluate(SHOWN, target) / 1000)
    print(f"\n{'page':24} click to shown: median, slowest of {repeats}")
    for name, times in took.items():
        figures = f"{median(times) * 1000:7.0f} ms {max(times) * 1000:7.0f} ms{_miss(median(times), SHOWN_LIMIT)}"
        print(f"{name:24} {figures}", flush=True)
    return all(median(times) <= SHOWN_LIMIT for times in took.values())


def ask_server(urls: list[str], repeats: int) -> bool:
    """Repeat each request of the pages alone."""
    print(f"\n{'request':72} server: median, CPU, bytes")
    good = True
    for url in urls:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        times, size, before = [], 0, cpu(browser=False)
        for _ in range(repeats):
            began = time.perf_counter()
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            size = len(connection.getresponse().read())
            times.append(time.perf_counter() - began)
        connection.close()
        used = (cpu(browser=False) - before) / repeats
        spent = min(median(times), used)
        good &= spent <= SERVER_LIMIT
        figures = f"{median(times) * 1000:6.0f} ms {used * 1000:6.0f} ms {size:9,}{_miss(spent, SERVER_LIMIT)}"
        print(f"{path[:72]:72} {figures}", flush=True)
    return good


def idle(page: Any, address: str) -> bool:
    print(f"\nidle tab, {IDLE:.0f} s: requests a minute, CPU of the server, CPU of the browser")
    good, sent = True, []
    page.on("request", lambda one: sent.append(one.url))
    for name, target in (("overview", "#/"), ("queues", "#/queues"), ("jobs", "#/jobs"), ("workers", "#/workers")):
        page.goto("about:blank")
        page.goto(f"{address}/{target}")
        page.wait_for_timeout(5000)
        sent.clear()
        served, shown = cpu(browser=False), cpu(browser=True)
        page.wait_for_timeout(IDLE * 1000)
        served, shown = (cpu(browser=False) - served) / IDLE * 100, (cpu(browser=True) - shown) / IDLE * 100
        minute = len(sent) * 60 / IDLE
        good &= minute < REQUESTS_LIMIT and served + shown <= IDLE_LIMIT
        missed = _miss(minute, REQUESTS_LIMIT) or _miss(served + shown, IDLE_LIMIT)
        print(f"{name:24} {minute:5.0f} {served:6.1f} % {shown:6.1f} %{missed}", flush=True)
    return good


def _miss(figure: float, target: float) -> str:
    return "   above the target" if figure > target else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("stores", nargs="*", choices=[*STORES, []], default=[])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where databases are made (default: bench/.work, beside the code)")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    work = options.dir or ROOT / "bench" / ".work"
    work.mkdir(parents=True, exist_ok=True)
    good = True
    for store in options.stores or STORES:
        with tempfile.TemporaryDirectory(dir=work) as folder, place(store, Path(folder)) as url:
            began = time.perf_counter()
            asyncio.run(fill(url, options.jobs, options.queues))
            took = time.perf_counter() - began
            print(f"\n## {store}: {options.jobs:,} jobs, {options.queues:,} queues, filled in {took:.0f} s", flush=True)
            good &= measure(url, options.repeats)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
