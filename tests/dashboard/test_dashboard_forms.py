"""Forms in a real browser: enqueue, edit and clone jobs, pause a task, schedules and settings; undo; by permission."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from test_dashboard_access import LOOKS, check

from holdfast import State
from holdfast.app import parts_of
from holdfast.http import tokens
from support.browser import look

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def dialog(page):
    return page.get_by_role("dialog")


def open_form(page, name):
    page.get_by_role("button", name=name).click()
    dialog(page).wait_for()


def submit(page, name):
    dialog(page).get_by_role("button", name=name, exact=True).click()


def job_on(page, lab):
    """The job whose page is shown."""
    expect(page).to_have_url(re.compile("#/jobs/.+"))
    return lab.do(lab.app.job(page.url.rpartition("/")[2]))


def test_a_job_is_enqueued_once_by_a_double_click(lab, page):
    look(page, lab, "#/jobs")
    open_form(page, "Enqueue…")
    page.get_by_label("Task (required)").fill("send_invoice")
    page.get_by_label("Arguments (required)").fill('{"customer": 7, "month": "2026-11"}')
    dialog(page).get_by_label("Queue", exact=True).fill("slow")
    dialog(page).get_by_label("Priority").fill("3")
    dialog(page).get_by_label("Tags").fill("a, b")
    dialog(page).get_by_role("button", name="Enqueue", exact=True).dblclick()
    job = job_on(page, lab)
    assert (job.task, job.queue, job.priority, job.tags) == ("send_invoice", "slow", 3, ("a", "b"))
    expect(page.locator("h1")).to_have_text("send_invoice")
    assert len(lab.do(lab.app.jobs()).jobs) == 1


def test_errors_are_shown_at_their_field_and_nothing_is_stored(lab, page):
    look(page, lab, "#/jobs")
    open_form(page, "Enqueue…")
    arguments = page.get_by_label("Arguments (required)")
    arguments.fill("{no")
    submit(page, "Enqueue")
    expect(page.get_by_label("Task (required)")).to_be_focused()
    expect(page.get_by_label("Task (required)")).to_have_accessible_description("This field is required.")
    expect(arguments).to_have_accessible_description(re.compile("This is not JSON"))
    page.get_by_label("Task (required)").fill("noop")
    arguments.fill('{"n": 12345678901234567890}')
    submit(page, "Enqueue")
    expect(arguments).to_have_accessible_description(re.compile("too large for a browser"))
    arguments.fill("{}")
    dialog(page).get_by_label("Priority").fill("1e9")
    submit(page, "Enqueue")
    expect(dialog(page).get_by_label("Priority")).to_have_attribute("aria-invalid", "true")
    expect(dialog(page).get_by_label("Priority")).to_be_focused()
    dialog(page).get_by_label("Priority").fill("")
    page.get_by_label("Task (required)").fill("holdfast.flow")
    submit(page, "Enqueue")
    expect(dialog(page).locator(".error-text")).to_contain_text("holdfast.")
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)
    assert lab.do(lab.app.jobs()).jobs == []
    page.tolerate("status of 4")  # the browser logs the refused requests


def test_a_waiting_job_is_edited_by_keyboard(lab, page):
    id = lab.enqueue("resize_image", "a.raw", 1, delay=3600)
    look(page, lab, f"#/jobs/{id}")
    page.get_by_role("button", name="Edit…").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Arguments (required)").fill('{"path": "b.raw", "width": 2}')
    dialog(page).get_by_label("Queue", exact=True).fill("slow")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Job edited")
    job = lab.do(lab.app.job(id))
    assert (job.queue, job.state, job.payload) == ("slow", State.SCHEDULED, {"path": "b.raw", "width": 2})
    open_form(page, "Edit…")
    submit(page, "Save")
    expect(dialog(page).get_by_role("alert")).to_have_text("Nothing was changed.")
    lab.do(lab.app.cancel(id))
    dialog(page).get_by_label("Queue", exact=True).fill("fast")
    submit(page, "Save")
    expect(dialog(page).get_by_role("alert")).to_contain_text("only a waiting job can be edited")
    assert lab.do(lab.app.job(id)).queue == "slow"
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Edit…")).to_have_count(0)
    page.tolerate("status of 4")  # the browser logs the refused request


def test_a_job_is_cloned_with_edits(lab, page):
    id = lab.enqueue("resize_image", "a.raw", 1)
    lab.work_off()
    look(page, lab, f"#/jobs/{id}")
    open_form(page, "Clone…")
    page.get_by_label("Arguments (required)").fill('{"path": "b.raw", "width": 9}')
    submit(page, "Enqueue clone")
    expect(page).not_to_have_url(re.compile(id))
    job = job_on(page, lab)
    assert (job.task, job.payload, job.meta["cloned_from"]) == ("resize_image", {"path": "b.raw", "width": 9}, id)


def test_a_task_is_paused_and_resumed(lab, page):
    look(page, lab, "#/queues")
    open_form(page, "Pause a task…")
    page.get_by_label("Task (required)").fill("send_invoice")
    page.get_by_label("Only jobs with these arguments").fill('{"customer": 7}')
    submit(page, "Pause task")
    row = page.locator("tr").filter(has_text="send_invoice")
    expect(row).to_contain_text("paused")
    [pause] = lab.do(lab.app.bulk.paused_tasks())
    assert (pause.task, pause.where) == ("send_invoice", {"customer": 7})
    row.get_by_role("button", name="Resume").click()
    expect(row).to_have_count(0)


def test_a_schedule_is_created_and_edited(lab, page):
    look(page, lab, "#/schedules")
    open_form(page, "New schedule…")
    page.get_by_label("Name (required)").fill("nightly")
    page.get_by_label("Task (required)").fill("export_orders")
    page.get_by_label("Cron expression").fill("0 3 * *")
    page.get_by_label("Arguments").fill('{"day": "yesterday"}')
    submit(page, "Save")
    expect(page.get_by_label("Cron expression")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Cron expression").fill("0 3 * * *")
    submit(page, "Save")
    row = page.locator("[data-row]").filter(has_text="nightly")
    expect(row).to_contain_text("At 03:00 every day")
    row.get_by_role("button", name="Edit…").click()
    page.get_by_label("Cron expression").fill("")
    page.get_by_label("Interval in seconds").fill("900")
    page.get_by_label("While the last run").select_option("skip")
    submit(page, "Save")
    expect(row).to_contain_text("15 min")
    kept = lab.do(lab.app.schedules.get("nightly"))
    assert (kept.rule.every, kept.rule.overlap, kept.task, bytes(kept.payload)) == (
        900, "skip", "export_orders", b'{"day":"yesterday"}',
    )  # fmt: skip
    page.tolerate("status of 4")  # the browser logs the refused request


def test_a_setting_is_set_changed_and_unset(lab, page):
    look(page, lab, "#/")
    page.get_by_role("button", name="Settings").click()
    expect(page.locator("h1")).to_have_text("Settings")
    open_form(page, "Set…")
    page.get_by_label("Setting (required)").fill("poll")
    page.get_by_label("Value (required)").fill("2.5")
    submit(page, "Save")
    row = page.locator("[data-row]").filter(has_text="poll")
    expect(row).to_contain_text("2.5")
    row.get_by_role("button", name="Change…").click()
    page.get_by_label("Value (required)").fill("-3")
    submit(page, "Save")
    expect(dialog(page).locator(".error-text")).to_contain_text("poll")
    page.get_by_label("Value (required)").fill("4")
    submit(page, "Save")
    expect(row).to_contain_text("4")
    assert lab.do(lab.app.config.get("poll")) == 4
    row.get_by_role("button", name="Unset").click()
    submit(page, "Unset")
    expect(page.locator(".empty")).to_contain_text("No settings in the store")
    page.tolerate("status of 4")  # the browser logs the refused request


def test_a_webhook_is_added_changed_and_removed(make_lab, page, monkeypatch):
    monkeypatch.setenv("HOLDFAST_SECRET", "a-secret-of-all-processes-of-this-store")
    lab = make_lab()
    look(page, lab, "#/settings")
    open_form(page, "Add a webhook…")
    page.get_by_label("Name (required)").fill("billing")
    page.get_by_label("URL (required)").fill("https://example.com/hook")
    dialog(page).get_by_label("Events").fill("job_dead, job_gone")
    submit(page, "Save")
    expect(dialog(page).get_by_label("Events")).to_have_attribute("aria-invalid", "true")
    dialog(page).get_by_label("Events").fill("job_dead")
    submit(page, "Save")
    row = page.locator("[data-row]").filter(has_text="billing")
    expect(row).to_contain_text("job_dead")
    row.get_by_role("button", name="Change…").click()
    dialog(page).get_by_label("Queues").fill("mail, slow")
    submit(page, "Save")
    expect(row).to_contain_text("mail, slow")
    [hook] = lab.do(lab.app.webhooks.list())
    assert (hook.url, hook.events, hook.queues) == ("https://example.com/hook", ("job_dead",), ("mail", "slow"))
    row.get_by_role("button", name="Remove").click()
    submit(page, "Remove")
    expect(row).to_have_count(0)
    page.tolerate("status of 4")  # the browser logs the refused request


def log_in(page, lab, token):
    page.goto(lab.address)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.locator(".page h1").wait_for()
    page.tolerate("status of 401")  # the browser logs the 401 before the login
    page.evaluate("location.hash = '#/settings'")
    expect(page.locator(".page h1")).to_have_text("Settings")


def test_a_token_is_created_shown_once_restricted_and_revoked(make_lab, page):
    lab = make_lab(token="a-long-enough-token")
    records = parts_of(lab.app).records
    own = lab.do(tokens.create(records, ["read", "operate"], "ann", queues=()))
    log_in(page, lab, own)
    open_form(page, "Create a token…")
    dialog(page).get_by_label("Roles").fill("read, work")
    submit(page, "Create")
    expect(dialog(page).get_by_label("Roles")).to_have_accessible_description(re.compile("lacks the roles work"))
    dialog(page).get_by_label("Roles").fill("read, operate")
    dialog(page).get_by_label("Label").fill("wall <b>screen</b>")
    dialog(page).get_by_label("Valid for").fill("7")
    dialog(page).get_by_label("Tasks").fill("report_*")
    submit(page, "Create")
    expect(dialog(page)).to_contain_text("cannot be shown again")
    page.mouse.click(5, 5)  # beside the dialog
    made = dialog(page).locator("pre").inner_text()
    assert made.startswith("hf_")
    submit(page, "Close")
    row = page.locator("[data-row]").filter(has_text="wall <b>screen</b>")
    expect(row).to_contain_text("by ann")
    assert made.split("_", 2)[2] not in page.content()
    row.get_by_role("button", name="Restrict…").click()
    dialog(page).get_by_label("Roles").fill("read")
    submit(page, "Save")
    expect(row.locator("td[data-label=Roles]")).to_have_text("read")
    [_, one] = lab.do(tokens.tokens(records))
    assert (one.id, one.roles, one.tasks, one.created_by) == (made.split("_")[1], ("read",), ("report_*",), "ann")
    assert (one.expires_at - one.created_at).days == 7
    row.get_by_role("button", name="Revoke").click()
    submit(page, "Revoke")
    expect(row).to_have_count(0)
    page.evaluate("location.hash = '#/audit'")
    audited = page.locator("tr[data-row]").filter(has_text="token.")
    expect(audited).to_have_count(4)
    expect(audited.get_by_role("link")).to_have_count(0)  # the id is not that of a job
    page.go_back()
    page.locator("[data-row]").filter(has_text="yours").get_by_role("button", name="Revoke").click()
    expect(dialog(page)).to_contain_text("you are logged out")
    submit(page, "Revoke")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert lab.do(tokens.tokens(records)) == []
    page.tolerate("status of 4")  # the browser logs the refused requests


def test_without_a_login_by_token_none_can_be_created(lab, page):
    look(page, lab, "#/settings")
    region = page.get_by_role("region", name="Tokens")
    expect(region).to_contain_text(re.compile("holdfast token create\\s*No tokens yet"))
    expect(page.get_by_role("button", name="Create a token…")).to_have_count(0)


def test_an_action_is_undone_on_the_audit_page(lab, page):
    job = lab.enqueue("resize_image", "a.raw", 1)
    lab.do(lab.app.cancel(job))
    lab.do(lab.app.pause("mail"))
    lab.do(lab.app.delete(lab.enqueue("resize_image", "b.raw", 1)))
    look(page, lab, "#/audit")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(3)
    expect(rows.nth(0).get_by_role("button")).to_have_count(0)
    for action, text in (("pause", "if this pause is still in force"), ("cancel", "1 job, unless started or changed")):
        listed = rows.count()
        rows.filter(has=page.get_by_role("rowheader", name=action)).get_by_role("button", name="Undo…").click()
        expect(dialog(page)).to_contain_text(text)
        submit(page, "Undo")
        expect(page.locator(".toast")).to_contain_text("Undone: 1. Not undone: 0")
        expect(rows).to_have_count(listed + 1)
    assert lab.do(lab.app.job(job)).state == State.QUEUED
    assert not lab.do(lab.app.resume("mail"))
    rows.nth(4).get_by_role("button", name="Undo…").click()
    submit(page, "Undo")
    expect(page.locator(".toast")).to_contain_text("Undone: 0. Not undone: 1 (1: they have changed since)")


def test_forms_are_shown_by_permission(make_lab, make_page):
    lab = make_lab(token="a-long-enough-token")
    id = lab.enqueue("resize_image", "a.raw", 1, delay=60)
    lab.do(lab.app.config.set("poll", 2))
    records = parts_of(lab.app).records
    made = [lab.do(tokens.create(records, roles)) for roles in (["read"], ["read", "submit"])]
    for token, buttons in zip(made, ([], ["Enqueue…"]), strict=True):
        page = make_page()
        page.goto(lab.address)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.locator(".page h1").wait_for()
        for where, title in (
            ("#/jobs", "Jobs"),
            (f"#/jobs/{id}", "resize_image"),
            ("#/queues", "Queues"),
            ("#/schedules", "Schedules"),
            ("#/settings", "Settings"),
        ):
            page.evaluate("where => (location.hash = where)", where)
            expect(page.locator(".page h1")).to_have_text(title)
            page.locator(".loading").wait_for(state="detached")
            found = page.get_by_role("button", name="…").all_inner_texts()
            assert [one for one in found if one] == (buttons if where == "#/jobs" else []), where
        page.tolerate("status of 401")  # the browser logs the 401 before the login


@pytest.mark.extended
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_forms_are_accessible(lab, make_page, scheme, width):
    id = lab.enqueue("resize_image", "a.raw", 1, delay=3600)
    lab.do(lab.app.cancel(lab.enqueue("resize_image", "b.raw", 1)))
    lab.do(lab.app.config.set("poll", 2))
    page = make_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    for where, name, send in (
        ("#/jobs", "Enqueue…", "Enqueue"),
        (f"#/jobs/{id}", "Edit…", "Save"),
        (f"#/jobs/{id}", "Clone…", None),
        ("#/queues", "Pause a task…", "Pause task"),
        ("#/schedules", "New schedule…", "Save"),
        ("#/settings", "Set…", "Save"),
        ("#/settings", "Add a webhook…", "Save"),
        ("#/audit", "Undo…", None),
    ):
        look(page, lab, where)
        check(page, where)
        open_form(page, name)
        check(page, name)
        if send:
            submit(page, send)
            dialog(page).locator(".error-text").first.wait_for()
            check(page, f"{name}: errors")


@pytest.mark.extended
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_forms_of_tokens_are_accessible(make_lab, make_page, scheme, width):
    lab = make_lab(token="a-long-enough-token")
    page = make_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    log_in(page, lab, "a-long-enough-token")
    open_form(page, "Create a token…")
    submit(page, "Create")
    dialog(page).locator(".error-text").first.wait_for()
    check(page, "a new token: errors")
    dialog(page).get_by_label("Roles").fill("read")
    dialog(page).get_by_label("Label").fill("W" * 100)
    submit(page, "Create")
    dialog(page).locator("pre").wait_for()
    check(page, "the new token")
    submit(page, "Close")
    page.get_by_role("button", name="Restrict…").wait_for()
    check(page, "tokens")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
