"""The page of the HTTP API: every operation of the document, in the browser, under the dashboard's policy."""

from __future__ import annotations

import json
import urllib.request

import pytest
from playwright.sync_api import expect


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_page_of_the_api_shows_every_operation(make_lab, page):
    lab = make_lab(token="a-long-enough-token")
    page.goto(f"{lab.address}/docs")
    with urllib.request.urlopen(f"{lab.address}/openapi.json", timeout=10) as answer:
        document = json.load(answer)
    operations = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    expect(page.locator("details")).to_have_count(len(operations))
    page.get_by_label("Find a route").fill("submit")
    expect(page.locator("#get_queues")).to_have_count(0)
    page.locator("#post_jobs summary").click()
    shown = page.locator("#post_jobs")
    expect(shown).to_contain_text("Needs the role")
    expect(shown.get_by_role("table", name="Body")).to_contain_text("max_attempts")
    expect(shown).to_contain_text("Give at most one of: run_at or delay; expires_in or expires_at.")
    expect(shown.locator("pre")).to_contain_text("send_invoice")
