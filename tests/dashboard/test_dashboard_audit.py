"""The page of the audit log: actions of every surface, filters, links, and who may see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from holdfast.app import parts_of
from support.browser import look

HOSTILE = (Path(__file__).parent / "hostile.js").read_text()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_operator_actions_are_listed_and_filtered(lab, page):
    job = lab.enqueue("resize_image", "a.raw", 1)
    lab.do(lab.app.cancel(job))
    lab.do(lab.app.pause("mail"))
    look(page, lab, "#/queues")
    page.get_by_role("button", name="Audit log").click()
    expect(page.locator("h1")).to_have_text("Audit log")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("pause")
    expect(rows.first).to_contain_text("done")
    expect(rows.last.get_by_role("link", name=job)).to_have_attribute("href", f"#/jobs/{job}")
    page.get_by_label("Action", exact=True).fill("cancel")
    expect(rows).to_have_count(1)
    assert "action=cancel" in page.url
    page.get_by_label("Action", exact=True).fill("<b>no</b>")
    expect(page.locator(".empty")).to_contain_text("No action is recorded")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_long_targets_do_not_widen_the_page(lab, make_page, width):
    task = parts_of(lab.app).registry.tasks["resize_image"]
    name = "W" * 120
    lab.do(lab.app.schedules.put(name, lab.app.call(task, "a.raw", 1), cron="1 3 * * *", tz="Europe/Berlin"))
    lab.do(lab.app.pause(name))
    page = make_page(viewport={"width": width, "height": 900})
    look(page, lab, "#/audit")
    expect(page.locator("tr[data-row]")).to_have_count(2)
    assert page.evaluate(HOSTILE)["wide"] == []
    for text in page.locator("td[data-label=Target] .mono").all():
        box = text.bounding_box()
        assert box["x"] + box["width"] <= width
    expect(page.get_by_role("button", name="Undo…").first).to_be_in_viewport(ratio=1)
