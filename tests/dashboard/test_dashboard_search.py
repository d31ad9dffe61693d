"""A text search in the browser: it goes on by itself behind its first window, until it is stopped."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast import Flow
from holdfast.app import parts_of
from holdfast.client import bulk
from support.browser import look
from support.eventually import eventually


@pytest.fixture
def hay(lab, monkeypatch):
    """A job, and 600 after it, which is more than two windows."""
    monkeypatch.setattr(bulk, "WINDOW", 250)
    task = parts_of(lab.app).registry.tasks["resize_image"]

    async def fill() -> None:
        await task.enqueue("needle.raw", 42)
        await lab.app.enqueue_many([lab.app.call(task, f"{n}.raw", 0) for n in range(600)])

    lab.do(fill())


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_search_goes_on_until_it_has_found_the_oldest_job(hay, lab, page):
    look(page, lab, "#/jobs?text=needle")
    row = page.locator("tr[data-row]")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("needle.raw")
    expect(page.locator(".pages")).to_contain_text("Searched 601 jobs")
    page.get_by_label("Search").fill("args.width:42")
    expect(row).to_contain_text("needle.raw")
    expect(page.locator(".pages")).to_contain_text("Searched 601 jobs")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_search_is_stopped_and_continued(hay, lab, page):
    def hold(route):
        """Leave the request without an answer."""

    page.route("**/v1/search?*cursor=*", hold)
    look(page, lab, "#/jobs?text=needle")
    expect(page.locator(".pages")).to_contain_text("Searching: 250 jobs")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".pages")).to_contain_text("Searched 250 jobs")
    expect(page.locator(".empty")).to_contain_text("No match yet")
    page.unroute("**/v1/search?*cursor=*")
    page.get_by_role("button", name="Search further").click()
    expect(page.locator("tr[data-row]")).to_contain_text("needle.raw")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_pasted_id_key_flow_or_worker_is_found_at_once(lab, page, monkeypatch):
    monkeypatch.setattr(bulk, "WINDOW", 250)
    task = parts_of(lab.app).registry.tasks["resize_image"]
    film = lab.enqueue("encode_film", "a.mov", 500)

    async def fill() -> tuple[str, str]:
        keyed = await task.using(key="order-77").enqueue("needle.raw", 42)
        made = Flow("import")
        made.add(task, "part.raw", 1)
        flow = await lab.app.enqueue_flow(made)
        await lab.app.enqueue_many([lab.app.call(task, f"{n}.raw", 0) for n in range(600)])
        return keyed.id, flow.id

    async def working() -> str | None:
        return next((one.id for one in await lab.app.workers() if film in one.jobs), None)

    keyed, flow = lab.do(fill())
    lab.start_worker("media")
    worker = lab.do(eventually(working))
    further = []
    page.on("request", lambda one: further.append(one.url) if "cursor=" in one.url else None)
    look(page, lab, "#/jobs")
    row = page.locator("tr[data-row]")
    for text, id in ((keyed, keyed), ("order-77", keyed), (flow, flow), (worker, film)):
        page.get_by_label("Search").fill(text)
        expect(row).to_have_count(1)
        expect(row.locator("[data-open]")).to_have_attribute("href", f"#/jobs/{id}")
        expect(page.locator(".pages")).to_contain_text("Searched 250 jobs")
    assert further == [], "the rest of the store is read only if the user asks for it"
    page.get_by_role("button", name="Search further").click()
    expect(page.locator(".pages")).to_contain_text("Searched 3")
