"""The schedules page in a real browser: list, run now, pause, resume and delete, with and without the role."""

from __future__ import annotations

import re

import msgspec
import pytest
from playwright.sync_api import expect

from holdfast.app import parts_of
from holdfast.http import tokens
from holdfast.schedules.service import KIND
from support.browser import look
from support.scene import by_the_clock

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def row(page, name):
    return page.locator("[data-row]").filter(has_text=name)


def test_an_empty_page_shows_how_to_create_a_schedule(lab, page):
    look(page, lab)
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.locator("h1")).to_have_text("Schedules")
    expect(page.locator(".empty")).to_contain_text("holdfast schedule put")
    assert page.get_by_role("link", name="Schedules").get_attribute("aria-current") == "page"


def test_schedules_show_last_and_next_runs(lab, page):
    lab.do(by_the_clock(lab.app))
    look(page, lab, "#/schedules")
    expect(page.locator("[data-row]")).to_have_count(5)
    nightly = row(page, "nightly-export")
    expect(nightly).to_contain_text("At 03:00 every day (Europe/Oslo)")
    due = lab.do(lab.app.schedules.get("nightly-export")).next_run
    expect(nightly.locator(".next")).to_contain_text(re.compile(r"in \d+ (h|min|s)"))
    assert nightly.locator("time").get_attribute("datetime")[:19] == due.isoformat()[:19]
    expect(row(page, "stock-oslo")).to_contain_text("paused")
    expect(row(page, "thumbnails")).to_contain_text("in code")
    reminders = row(page, "invoice-reminders")
    last = lab.do(lab.app.schedules.get("invoice-reminders")).last_job
    link = reminders.get_by_role("link", name=re.compile("ago|now"))
    assert link.get_attribute("href") == f"#/jobs/{last}"
    link.click()
    expect(page.locator(".facts")).to_contain_text("schedule/invoice-reminders/")
    look(page, lab, "#/schedules")
    row(page, "invoice-reminders").get_by_role("link", name="invoice-reminders").click()
    expect(page.locator("h1")).to_have_text("Jobs")
    expect(page.locator(f"a[href='#/jobs/{last}']").first).to_be_visible()


def test_a_due_run_that_was_not_enqueued_is_late(lab, page):
    kept = lab.do(lab.app.schedules.put("forgotten", "some_task", every=3600))
    long_ago = msgspec.json.encode(msgspec.structs.replace(kept, next=1_000_000))
    lab.do(parts_of(lab.app).records.put(KIND, "forgotten", long_ago))
    look(page, lab, "#/schedules")
    expect(page.locator(".next .late")).to_contain_text("due")


def test_the_error_of_a_run_is_shown(lab, page):
    kept = lab.do(lab.app.schedules.put("refused", "some_task", every=3600))
    lab.do(
        parts_of(lab.app).records.put(
            KIND, "refused", msgspec.json.encode(msgspec.structs.replace(kept, error="queue is full"))
        )
    )
    look(page, lab, "#/schedules")
    expect(row(page, "refused").locator(".error-text")).to_have_text("queue is full")


def test_a_schedule_is_run_paused_resumed_and_deleted(lab, page):
    schedules = lab.app.schedules
    lab.do(by_the_clock(lab.app))
    look(page, lab, "#/schedules")
    nightly, dialog, toast = row(page, "nightly-export"), page.get_by_role("dialog"), page.locator("#toasts")
    nightly.get_by_role("button", name="Run now").click()
    expect(toast).to_contain_text("nightly-export enqueued as job")
    [job] = lab.do(lab.app.jobs(task="export_orders")).jobs
    assert job.payload == {"day": "yesterday"}

    nightly.get_by_role("button", name="Pause").click()
    expect(dialog).to_contain_text("Missed runs are not made up")
    dialog.get_by_role("button", name="Pause schedule").click()
    expect(nightly).to_contain_text("paused")
    assert lab.do(schedules.get("nightly-export")).paused
    nightly.get_by_role("button", name="Resume").click()
    expect(nightly.get_by_role("button", name="Pause")).to_be_visible()
    assert not lab.do(schedules.get("nightly-export")).paused

    row(page, "thumbnails").get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text("the next worker that starts creates it again")
    dialog.get_by_role("button", name="Go back").click()
    nightly.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete schedule").click()
    expect(nightly).to_have_count(0)
    assert len(lab.do(schedules.list())) == 4


def test_the_read_role_shows_no_buttons(lab, page):
    lab.do(by_the_clock(lab.app))
    reader = lab.do(tokens.create(parts_of(lab.app).records, ["read"]))
    lab.service.auth.keyring._read_at = None
    page.goto(f"{lab.address}/#/schedules")
    page.get_by_label("Token").fill(reader)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("[data-row]")).to_have_count(5)
    expect(page.locator(".page").get_by_role("button")).to_have_count(0)
    page.tolerate("status of 401")  # the browser logs the 401


def test_a_request_from_before_the_login_does_not_log_out(lab, page):
    lab.do(by_the_clock(lab.app))
    reader = lab.do(tokens.create(parts_of(lab.app).records, ["read"]))
    lab.service.auth.keyring._read_at = None
    without_token = []
    page.route(
        "**/v1/schedules*",
        lambda route: route.continue_() if route.request.headers.get("authorization") else without_token.append(route),
    )
    page.goto(f"{lab.address}/#/schedules")
    page.get_by_label("Token").fill(reader)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("[data-row]")).to_have_count(5)
    with page.expect_response(lambda response: response.status == 401) as refused:
        without_token.pop().continue_()
    refused.value.finished()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(page.locator("[data-row]")).to_have_count(5)
    expect(page.get_by_label("Token")).to_have_count(0)
    page.tolerate("status of 401")  # the browser logs the 401 responses


def test_names_are_shown_as_text(lab, page):
    name = "<img src=x onerror=alert(1)> a/b?c#d"
    lab.do(lab.app.schedules.put(name, "some_task", every=3600))
    look(page, lab, "#/schedules")
    expect(page.locator("[data-row] th")).to_contain_text(name)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete schedule").click()
    expect(page.locator(".empty")).to_be_visible()
