"""The way through the pages: history, breadcrumb, new tabs, names, and the focus."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from holdfast import Flow
from holdfast.app import parts_of
from support.browser import look
from support.scene import a_few

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
TOKEN = "a-long-enough-token"


def rows(page):
    return page.locator("[data-row]")


def test_back_and_the_breadcrumb_return_to_the_same_page_of_the_list(lab, page):
    async def many():
        task = parts_of(lab.app).registry.tasks["resize_image"]
        await lab.app.enqueue_many([lab.app.call(task, f"{n}.raw", n) for n in range(120)])

    lab.do(many())
    look(page, lab, "#/jobs?type=resize_image")
    page.get_by_role("button", name="Older").click()
    expect(rows(page).first).to_contain_text("69.raw")
    page.evaluate("window.scrollTo(0, 700)")
    page.wait_for_function("() => window.scrollY === 700")
    rows(page).nth(20).get_by_role("link").click()
    page.locator(".job-title").wait_for()
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Jobs").click()
    expect(rows(page).first).to_contain_text("69.raw")
    expect(page.get_by_label("Task")).to_have_value("resize_image")
    page.go_back()
    page.locator(".job-title").wait_for()
    page.go_back()
    expect(rows(page).first).to_contain_text("69.raw")
    page.wait_for_function("() => window.scrollY === 700")
    page.get_by_role("button", name="Older").click()
    expect(rows(page)).to_have_count(20)
    page.go_back()
    expect(rows(page).first).to_contain_text("69.raw")
    page.get_by_role("button", name="Newer").click()
    expect(rows(page).first).to_contain_text("119.raw")


def test_back_and_the_breadcrumb_return_to_the_same_flows_and_queues(lab, page):
    async def many():
        task = parts_of(lab.app).registry.tasks["resize_image"]
        for number in range(55):
            made = Flow(f"import {number}")
            made.add(task, "a.raw", 1)
            await lab.app.enqueue_flow(made)

    lab.do(many())
    look(page, lab, "#/flows?state=blocked")
    page.get_by_role("button", name="Older").click()
    expect(rows(page)).to_have_count(5)
    rows(page).first.get_by_role("link").click()
    page.locator(".job-title").wait_for()
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Flows").click()
    expect(rows(page)).to_have_count(5)
    expect(page.get_by_role("button", name="blocked")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Newer").click()
    expect(rows(page)).to_have_count(50)
    page.go_back()
    expect(rows(page)).to_have_count(5)
    look(page, lab, "#/queues")
    page.get_by_role("button", name="Queued").click()
    page.get_by_role("link", name=re.compile("^no worker")).first.click()
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Queues").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Queued")


def test_a_new_tab_has_the_token_and_a_logout_ends_all_tabs(make_lab, page):
    lab = make_lab(token=TOKEN)
    page.goto(lab.address)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Overview")
    second = page.context.new_page()
    second.goto(f"{lab.address}/#/queues")
    expect(second.locator("h1")).to_have_text("Queues")
    assert page.evaluate("JSON.stringify(localStorage)").count(TOKEN) == 0
    second.get_by_role("button", name="Log out").click()
    for one in (page, second):
        expect(one.get_by_label("Token")).to_be_visible()
        assert TOKEN not in one.evaluate("JSON.stringify(sessionStorage)")
    page.tolerate("status of 401")  # the browser logs the 401


def test_an_error_group_and_a_shell_job_are_named(lab, page):
    lab.do(a_few(lab.app))
    command = 'echo "one" && exit 1'
    lab.do(lab.app.enqueue("shell", command=command))
    look(page, lab, "#/errors")
    rows(page).filter(has_text="no billing address").get_by_role("link", name="Jobs").click()
    states = page.get_by_role("group", name="States")
    expect(states.get_by_role("button", name=re.compile("ValueError: order … has no billing address"))).to_be_visible()
    look(page, lab, "#/jobs?type=shell")
    rows(page).get_by_role("link", name=command).click()
    expect(page.locator("h1")).to_have_text(command)


def test_the_focus_moves_to_the_heading_of_a_new_page(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab)
    for name in ("Queues", "Errors"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1, name=name)).to_be_focused()
        page.locator(".loading").wait_for(state="detached")
        expect(page.get_by_role("heading", level=1, name=name)).to_be_focused()
    rows(page).first.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("heading", level=1, name="Jobs")).to_be_focused()
