"""Every page loads within a second. HOLDFAST_JOBS=1000000 sets the number of ended jobs; a tenth of it is queued."""

from __future__ import annotations

import os
import time

import pytest

from support.many import fill_postgres, fill_sqlite

JOBS = int(os.environ.get("HOLDFAST_JOBS", "0"))
SECOND = 1.0
PAGES = {
    "overview": "#/",
    "jobs": "#/jobs",
    "jobs, queued": "#/jobs?state=queued",
    "jobs, dead": "#/jobs?state=dead",
    "jobs, succeeded": "#/jobs?state=succeeded",
    "jobs, failed (none)": "#/jobs?state=failed",
    "jobs, a rare queue": "#/jobs?queue=rare",
    "jobs, a task": "#/jobs?type=send_mail",
    "jobs, no such task": "#/jobs?type=no_such",
    "jobs, no such tag": "#/jobs?tag=no_such",
    "jobs, search that finds": "#/jobs?text=picture-9",
    "jobs, search that does not": "#/jobs?text=nothing+like+this",
    "jobs, last hour": "#/jobs?since=3600",
    "flows": "#/flows",
    "queues": "#/queues",
    "one queue": "#/queues/default",
    "workers": "#/workers",
    "dead letters": "#/dead",
    "errors": "#/errors",
    "one job": "#/jobs/job-77",
}


@pytest.mark.timeout(900)
@pytest.mark.skipif(not JOBS, reason="takes minutes: set HOLDFAST_JOBS=1000000")
def test_every_page_answers_within_a_second(store_url, make_lab, make_page, request):
    lab = make_lab()
    lab.do(lab.app.stats())
    if store_url.startswith("sqlite"):
        fill_sqlite(store_url.removeprefix("sqlite:///").partition("?")[0], JOBS, JOBS // 10)
    else:
        server, _, schema = store_url.partition("?schema=")
        lab.do(fill_postgres(server, schema, JOBS, JOBS // 10))
    page = make_page()
    asked = {}
    page.on("requestfinished", lambda one: asked.__setitem__(one.url.split("/v1/")[-1], one.timing["responseEnd"]))
    page.goto(lab.address)  # warms up files, connections and code
    page.locator(".charts svg").first.wait_for()
    print(f"\n{JOBS} ended, {JOBS // 10} queued, {store_url.partition(':')[0]}")
    slow = {}
    for name, where in PAGES.items():
        page.goto("about:blank")
        asked.clear()
        began = time.perf_counter()
        page.goto(f"{lab.address}/{where}", wait_until="commit")
        page.locator(".page h1").wait_for()
        page.locator(".loading").wait_for(state="detached")
        took = time.perf_counter() - began
        page.wait_for_timeout(30)
        slowest = max(((ms, url) for url, ms in asked.items() if "events" not in url), default=(0, ""))
        print(f"{name:28} {took * 1000:6.0f} ms   slowest request {slowest[0]:5.0f} ms  {slowest[1][:60]}")
        if took > SECOND:
            slow[name] = took
    counted = lab.do(timed(lab, "count", state=["queued"], text="picture"))
    print(f"{'count by text':28} {counted * 1000:6.0f} ms")
    assert slow == {}


async def timed(lab, what, **parts):
    from holdfast.client.search import Filter

    began = time.perf_counter()
    await getattr(lab.app, what)(Filter(**parts))
    return time.perf_counter() - began
