"""A job's output by attempt, live, with colours, search and download; its values as trees and tables."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import expect

from holdfast import Backoff, Context, Worker
from holdfast.core.job import TERMINAL
from support.browser import look

pytestmark = [pytest.mark.extended, pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)]


async def output_of(app, attempts):
    """A job that fails, with coloured and hostile output in each attempt; it succeeds in the last."""

    @app.task(name="coloured", max_attempts=attempts, retry=Backoff(base=0.0, factor=1, jitter=0))
    async def coloured(ctx: Context, customer: dict[str, Any]) -> list[dict[str, Any]]:
        print(f"\x1b[31mred {ctx.job.attempt}\x1b[0m \x1b[1;38;5;46mbright\x1b[0m <b>bold</b> \x00 a\u202egnp.exe")
        ctx.log.error("<img src=x onerror='window.ran = 1'>")
        if ctx.job.attempt < attempts:
            raise OSError("again")
        return [{"id": n, "name": f"<i>{n}</i>", "nested": {"n": n}} for n in range(120)]

    job = await coloured.enqueue({"name": "Ada", "address": {"city": "<b>", "codes": [1, 2]}, "long": "x" * 3000})
    while (await app.job(job.id)).state not in TERMINAL:
        await Worker(app, until_idle=True).run()
    return job.id


def test_the_output_of_every_attempt_has_colours_a_search_and_a_download(lab, page):
    id = lab.do(output_of(lab.app, 2))
    look(page, lab, f"#/jobs/{id}")
    log = page.get_by_role("log", name="Output of the job")
    expect(log.locator(".log-line")).to_have_count(4)
    expect(log.locator(".ansi-1").first).to_have_text("red 1")
    expect(log.locator(".ansi-bold").first).to_have_text("bright")
    expect(log.locator(".level-error")).to_have_count(2)
    expect(log).to_contain_text("<b>bold</b> ␀ a⟨202E⟩gnp.exe")
    assert page.evaluate("window.ran ?? null") is None
    assert log.locator("b, img").count() == 0, "output is never markup"
    page.get_by_role("combobox", name="Attempt").select_option("Attempt 2")
    expect(log.locator(".log-line")).to_have_count(2)
    expect(log).not_to_contain_text("red 1")
    page.get_by_role("combobox", name="Attempt").select_option("All attempts")
    page.get_by_role("searchbox", name="Find in the output").fill("RED 2")
    expect(log.locator("mark")).to_have_text(["red 2"])
    expect(page.get_by_role("region", name="Output")).to_contain_text("1 of 4 lines")
    with page.expect_download() as started:
        page.get_by_role("button", name="Download").click()
    assert started.value.suggested_filename == f"{id}.log"
    assert b"\x1b[31mred 1" in Path(started.value.path()).read_bytes()


def test_a_running_job_prints_live(lab, page):
    @lab.app.task(name="counting", queue="media")
    async def counting(ctx: Context) -> None:
        for number in range(10_000):
            ctx.log.info("step %d", number)
            await asyncio.sleep(0.05)

    id = lab.enqueue("counting")
    lab.start_worker("media")
    look(page, lab, f"#/jobs/{id}")
    log = page.get_by_role("log", name="Output of the job")
    expect(log).to_contain_text("step 5")
    expect(page.get_by_role("region", name="Output")).to_contain_text("live")
    expect(log).to_contain_text("step 30")


def test_the_stream_of_every_attempt_is_live_and_has_a_search_and_a_download(lab, page):
    go = asyncio.Event()

    @lab.app.task(name="speaking", queue="media", max_attempts=2, retry=Backoff(base=0.0, factor=1, jitter=0))
    async def speaking(ctx: Context) -> None:
        await ctx.emit(f"\x1b[31mred {ctx.job.attempt}\x1b[0m <b>bold</b>")
        await ctx.emit({"done": ctx.job.attempt, "html": "<img src=x onerror='window.ran = 1'>"})
        if ctx.job.attempt == 1:
            raise OSError("again")
        await go.wait()
        await ctx.emit("last words")

    id = lab.enqueue("speaking")
    lab.start_worker("media")
    look(page, lab, f"#/jobs/{id}")
    panel, log = page.get_by_role("region", name="Stream"), page.get_by_role("log", name="Stream of the job")
    expect(log.locator(".log-line")).to_have_count(4)
    expect(panel).to_contain_text("live")
    expect(log.locator(".ansi-1")).to_have_text(["red 1", "red 2"])
    expect(log.locator(".log-line").nth(3)).to_contain_text('{"done":2,"html":"<img')
    assert page.evaluate("window.ran ?? null") is None
    assert log.locator("b, img").count() == 0, "chunks are never markup"
    lab._loop.call_soon_threadsafe(go.set)
    expect(log.locator(".log-line").last).to_contain_text("last words")
    panel.get_by_role("combobox", name="Attempt").select_option("Attempt 1")
    expect(log.locator(".log-line")).to_have_count(2)
    panel.get_by_role("combobox", name="Attempt").select_option("All attempts")
    panel.get_by_role("searchbox").fill("LAST")
    expect(log.locator("mark")).to_have_text(["last"])
    expect(panel).to_contain_text("1 of 5 chunks")
    with page.expect_download() as started:
        panel.get_by_role("button", name="Download").click()
    assert started.value.suggested_filename == f"{id}.jsonl"
    lines = Path(started.value.path()).read_text().splitlines()
    assert [msgspec.json.decode(line) for line in lines][1::3] == [
        {"done": 1, "html": "<img src=x onerror='window.ran = 1'>"}, "last words",
    ]  # fmt: skip


def test_values_are_trees_and_lists_of_records_tables(lab, page):
    id = lab.do(output_of(lab.app, 1))
    look(page, lab, f"#/jobs/{id}")
    arguments = page.get_by_role("region", name="Arguments")
    expect(arguments.locator("summary").filter(has_text="address")).to_contain_text("2 fields")
    codes = arguments.locator("details").filter(has_text="codes").last
    codes.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(codes.locator("li")).to_have_text(["0 1", "1 2"])
    arguments.get_by_role("button", name="Show all 3,000 characters").click()
    expect(arguments).to_contain_text("x" * 3000)
    arguments.get_by_role("button", name="Show as JSON").click()
    expect(arguments.locator("pre")).to_contain_text('"city": "<b>"')
    result = page.get_by_role("region", name="Result", exact=True)
    table = result.get_by_role("table", name="120 records")
    assert table.locator("thead th").all_inner_texts() == ["#", "id", "name", "nested"]
    assert table.locator("tbody tr").nth(7).locator("td").all_inner_texts() == ["7", "<i>7</i>", '{"n":7}']
    expect(table.locator("tbody tr")).to_have_count(100)
    result.get_by_role("button", name="Show 20 of 20 more").click()
    expect(table.locator("tbody tr")).to_have_count(120)
