"""A worker is controlled from its row: quiet, resume, and the stacks of its tasks."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser import look


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_worker_is_made_quiet_and_shows_its_stacks(lab, page):
    lab.start_worker("media", concurrency=3)
    lab.enqueue("encode_film", "a.mov", 500)
    look(page, lab, "#/workers")
    expect(page.locator("[data-label=Slots]")).to_contain_text("1 / 3")
    page.get_by_role("button", name="Control…").click()
    dialog = page.get_by_role("dialog", name="Control a worker")
    expect(dialog.get_by_role("status")).to_have_text("The worker is active.")
    dialog.get_by_role("button", name="Quiet").click()
    expect(dialog.get_by_role("status")).to_have_text("The worker is quiet.")
    dialog.get_by_role("button", name="Show stacks").click()
    expect(dialog.locator("pre").first).to_contain_text("encode_film")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".workers .tag", has_text="quiet")).to_be_visible()
    [worker] = lab.do(lab.app.workers())
    assert worker.state == "quiet"
