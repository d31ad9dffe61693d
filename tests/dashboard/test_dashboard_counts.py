"""Counts: every job is in every count, problems are summed by kind, and unknown depths are gaps."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from holdfast import State, Worker
from holdfast.app import parts_of
from holdfast.client import bulk, errors
from support.browser import look
from support.scene import a_few

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


async def in_many_states(app):
    """`a_few`, 2 of them blocked by a paused task, and a cancelled job."""
    await a_few(app)
    await app.pause(task="export_orders")
    await Worker(app, ["exports"], until_idle=True).run()
    await app.cancel((await parts_of(app).registry.tasks["resize_image"].enqueue("a.raw", 1)).id)


def test_the_parts_of_each_count_add_up(lab, page):
    lab.do(in_many_states(lab.app))
    stored = lab.do(lab.app.stats()).counts
    assert stored["blocked"] == 2
    total = sum(stored.values())
    look(page, lab)
    texts = page.get_by_role("list", name="Jobs by state").locator("li").all_inner_texts()
    tiles = dict(text.split("\n")[::-1] for text in texts)
    assert {name: int(number) for name, number in tiles.items()} == stored
    expect(page.locator(".title")).to_contain_text(f"{total} jobs")
    look(page, lab, "#/jobs")
    chips = page.get_by_role("group", name="States").locator("[aria-pressed]")
    expect(chips.first).not_to_contain_text("…")
    assert sum(int(re.search(r"\d+", text)[0]) for text in chips.all_inner_texts()) == total
    look(page, lab, "#/queues")
    parts = ("Queued", "Running", "Scheduled", "Blocked", "Failed", "Dead", "Ended")
    everything = 0
    for row in page.get_by_role("table", name="Queues").locator("tbody tr").all():
        everything += sum(int(row.locator(f"[data-label={label}]").inner_text()) for label in parts)
    assert everything == total


def test_each_kind_of_problem_is_one_line_with_its_count_and_action(lab, page):
    async def trouble():
        await in_many_states(lab.app)
        task = parts_of(lab.app).registry.tasks["resize_image"]
        for number in range(12):
            await task.using(queue=f"q{number}").enqueue("a.raw", 1)
        await task.using(queue="held").enqueue("a.raw", 1)
        await lab.app.pause("held")

    lab.do(trouble())
    look(page, lab)
    lines = page.locator(".attention li")
    expect(lines.filter(has_text="Failing")).to_have_count(1)
    assert [text.split("\n")[:2] for text in lines.all_inner_texts()] == [
        ["No worker", "12"],
        ["Dead letters", "3"],
        ["Failing", "4"],
        ["Paused", "1"],
        ["Paused", "1"],
        ["Blocked", "2"],
    ]
    expect(lines.nth(0)).to_contain_text("12 queues without a live worker: 12 jobs waiting in q")
    expect(lines.nth(0)).to_contain_text("Show queues")
    expect(lines.filter(has_text="pause of tasks")).to_contain_text("export_orders")
    lines.nth(0).get_by_role("link").click()
    expect(page.locator("h1")).to_have_text("Queues")
    rows = page.get_by_role("table", name="Queues").locator("tbody tr")
    expect(rows).to_have_count(12)
    page.get_by_role("link", name="12 of").click()
    expect(rows.filter(has_text="held")).to_have_count(1)
    assert lab.do(lab.app.stats()).counts[State.BLOCKED] == 2


def test_dialogs_and_groups_count_all_jobs(lab, page, monkeypatch):
    async def die():
        task = parts_of(lab.app).registry.tasks["monthly_report"]
        await lab.app.enqueue_many([lab.app.call(task, f"month-{n}") for n in range(300)])
        await Worker(lab.app, until_idle=True).run()

    monkeypatch.setattr(bulk, "COUNTED", 250)
    monkeypatch.setattr(errors, "FAILED_READ", 250)
    lab.do(die())
    look(page, lab, "#/dead")
    group = page.locator("[data-row]")
    expect(group.locator(".many")).to_have_text("300jobs")
    expect(page.locator(".window")).to_have_text("All 300 dead letters are shown.")
    group.get_by_role("button", name="Retry", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 300 jobs?")
    expect(dialog).to_contain_text("All jobs in state dead, of task monthly_report, with the error KeyError: '…'.")
    dialog.get_by_role("button", name="Retry 300 jobs").click()
    expect(page.locator("#toasts")).to_contain_text("300 jobs retried")
    expect(page.locator(".empty")).to_contain_text("No dead letters")


def test_a_missing_depth_is_a_gap(lab, page):
    look(page, lab)
    curves = page.evaluate("""async () => {
        const { sparkline } = await import("/dashboard/chart.js");
        const element = document.createElement("span");
        sparkline(element, [1, 2, null, 3, 4], "depth");
        return element.querySelectorAll(".line-accent").length;
    }""")
    assert curves == 2
