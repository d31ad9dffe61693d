"""The page of the audit log: actions of every surface, filters, links, and who may see it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser import look


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
