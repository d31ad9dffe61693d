"""The page of queues with a thousand of them: search, order, and only visible rows in the document."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast.app import parts_of
from support.browser import look


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_thousand_queues_are_searched_sorted_and_scrolled(lab, page):
    task = parts_of(lab.app).registry.tasks["resize_image"]

    async def fill() -> None:
        calls = [lab.app.call(task.using(queue=f"tenant-{n:04}"), "a.raw", n) for n in range(1000)]
        await lab.app.enqueue_many(calls)
        await lab.app.enqueue_many([lab.app.call(task.using(queue="tenant-0777"), "b.raw", n) for n in range(5)])

    lab.do(fill())
    look(page, lab, "#/queues")
    rows = page.locator("tr[data-row]")
    expect(rows.first).to_contain_text("tenant-0000")
    assert rows.count() < 120
    expect(page.get_by_role("link", name="tenant-0999", exact=True)).to_have_count(0)
    page.mouse.wheel(0, 1_000_000)
    expect(page.get_by_role("link", name="tenant-0999", exact=True)).to_be_visible()
    assert rows.count() < 120
    page.get_by_role("button", name="Queued").click()
    page.mouse.wheel(0, -1_000_000)
    expect(rows.first).to_contain_text("tenant-0777")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Queued")
    assert "sort=queued.down" in page.url
    page.get_by_label("Find a queue").fill("0042")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("tenant-0042")
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Find a queue")).to_have_value("0042")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_queue_is_a_compact_card_on_a_phone(lab, make_page):
    lab.enqueue("send_invoice", 1, "2026-01")
    lab.enqueue("resize_image", "a.raw", 1)
    page = make_page(viewport={"width": 390, "height": 844})
    look(page, lab, "#/queues")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for row in rows.all():
        box = row.bounding_box()
        assert box["width"] <= 390
        assert box["height"] < 300
        for part in (row.get_by_role("link").first, row.get_by_role("button", name="Pause")):
            inner = part.bounding_box()
            assert box["x"] <= inner["x"]
            assert inner["x"] + inner["width"] <= box["x"] + box["width"]
