"""Reasons: why jobs wait, on the overview and on the page of a queue, each with its action."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast import Worker
from holdfast.app import parts_of
from support.browser import look
from support.scene import a_few

pytestmark = [pytest.mark.extended, pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)]


def test_the_overview_and_a_queue_say_why_jobs_wait(lab, page):
    async def waiting():
        await a_few(lab.app)
        await lab.app.pause(task="resize_image")
        task = parts_of(lab.app).registry.tasks["resize_image"]
        await lab.app.enqueue_many([lab.app.call(task, "a.raw", n) for n in range(3)])
        await Worker(lab.app, ["default"], until_idle=True).run()
        await task.using(queue="held").enqueue("a.raw", 1)
        await lab.app.pause("held")

    lab.do(waiting())
    look(page, lab)
    why = page.get_by_role("region", name="Why jobs wait")
    expect(why).to_contain_text("8 jobs wait")
    assert [text.split("\n")[0] for text in why.locator("li").all_inner_texts()] == [
        "2 in queue 'exports', which no live worker serves",
        "1 in the paused queue 'held'",
        "3 for paused task 'resize_image'",
        "1 for a retry after a failure",
        "1 for their due time",
    ]
    expect(why.locator("li").first).to_contain_text("holdfast worker start --queues exports")
    expect(why.locator("li").nth(1)).not_to_contain_text("holdfast")  # its action is the link
    why.get_by_role("link", name="Show queue").nth(1).click()
    expect(page.locator("h1")).to_have_text("held")
    expect(why.locator("li")).to_contain_text("in the paused queue 'held'")
    page.get_by_role("button", name="Resume").click()
    expect(why.locator("li")).to_contain_text("which no live worker serves")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_a_row_of_the_queues_links_to_its_reasons(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab, "#/queues")
    page.get_by_role("link", name="why jobs of exports wait").click()
    expect(page.locator("h1")).to_have_text("exports")
    expect(page.get_by_role("list", name="Jobs by state")).to_contain_text("2queued")
    look(page, lab, "#/queues/payments")
    expect(page.get_by_text("No job of this queue waits.")).to_be_visible()
    look(page, lab, "#/queues/none")
    expect(page.locator("h1")).to_have_text("Queue not found")
