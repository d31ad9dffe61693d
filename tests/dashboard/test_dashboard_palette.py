"""The command palette: pages, pasted ids, queues, tasks and actions, by keyboard; and saved filters."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser import look
from support.scene import a_few

pytestmark = [pytest.mark.extended, pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)]


def find(page, text):
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Find a page").fill(text)
    return page.get_by_role("dialog").get_by_role("option")


def test_pages_queues_tasks_jobs_and_actions_are_found(lab, page):
    lab.do(a_few(lab.app))
    lab.start_worker("media")
    job = lab.do(lab.app.jobs(state="dead")).jobs[0]
    look(page, lab)
    expect(find(page, "sched").first).to_have_text("PageSchedules")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Schedules")
    expect(find(page, "sett").first).to_have_text("PageSettings")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Settings")
    expect(find(page, job.id).first).to_contain_text(job.task)
    page.keyboard.press("Enter")
    expect(page.locator(".facts")).to_contain_text(job.id)
    expect(find(page, "queue exports").first).to_have_text("Queueexports")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("exports")
    expect(find(page, "encode").first).to_have_text("Taskencode_film")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Task", exact=True)).to_have_value("encode_film")
    options = find(page, "pause queue exp")
    expect(options.first).to_have_text("ActionPause queue exports")
    options.first.click()
    page.get_by_role("dialog").get_by_role("button", name="Pause queue").click()
    expect(page.locator("#toasts")).to_contain_text("Queue exports paused")
    options = find(page, "no such thing")
    expect(options).to_have_text(["JobsSearch jobs for no such thing"])
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_arrows_choose_and_a_button_opens_it(lab, page):
    look(page, lab)
    page.get_by_role("button", name="Commands").click()
    box = page.get_by_role("combobox")
    expect(box).to_be_focused()
    box.fill("jobs: ")
    chosen = page.locator("[aria-selected=true]")
    expect(chosen).to_have_text("JobsJobs: queued")
    page.keyboard.press("ArrowDown")
    expect(chosen).to_have_text("JobsJobs: running")
    assert box.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")  # from the first to the last
    expect(chosen).to_have_text("JobOpen job jobs:")


def test_a_filter_is_saved_by_name_and_removed(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab, "#/jobs?state=dead&queue=payments")
    page.get_by_role("button", name="Save filter").click()
    page.get_by_label("Name").fill("<b>bad cards</b>")
    page.keyboard.press("Enter")
    saved = page.get_by_role("list", name="Saved filters").get_by_role("link")
    expect(saved).to_have_text("<b>bad cards</b>")
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_url("**/#/jobs?")
    saved.click()
    page.wait_for_url("**queue=payments")
    expect(page.locator("tbody tr")).to_have_count(3)
    look(page, lab)  # a new visit
    expect(find(page, "bad cards").first).to_have_text("Filter<b>bad cards</b>")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(3)
    find(page, "remove filter").first.click()
    expect(page.locator("#toasts")).to_contain_text("removed")
    expect(saved).to_have_count(0)
