"""Every page and action of the dashboard in a real browser, on an embedded store and on a server."""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Error, expect

from holdfast import State
from holdfast.app import parts_of
from holdfast.http import tokens
from holdfast.store.protocol import Finding
from support.browser import look
from support.scene import a_few


def rows(page):
    return page.locator("[data-row]")


@pytest.mark.extended
def test_an_empty_store_shows_first_commands(lab, page):
    look(page, lab)
    expect(page.locator(".empty")).to_contain_text("holdfast enqueue")
    for where, words in {
        "#/jobs": "No jobs yet",
        "#/queues": "No queues yet",
        "#/workers": "No worker is alive",
        "#/dead": "No dead letters",
        "#/errors": "No errors",
    }.items():
        look(page, lab, where)
        expect(page.locator(".empty")).to_contain_text(words)


def test_the_overview_shows_counts_charts_and_what_needs_attention(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab)
    tiles = page.locator(".tiles").first
    expect(tiles.locator("a", has_text="succeeded").locator("b")).to_have_text("3")
    expect(tiles.locator("a", has_text="dead").locator("b")).to_have_text("3")
    attention = page.locator(".attention")
    expect(attention).to_contain_text("Queue exports: 2 jobs waiting, no live worker serves it")
    expect(attention).to_contain_text("3 jobs became dead in the last hour")
    expect(attention).to_contain_text("ValueError: order … has no billing address")
    expect(page.locator(".charts svg.plot")).to_have_count(4)
    throughput = page.get_by_role("img", name=re.compile("Throughput, last 1 h: 3 jobs succeeded"))
    throughput.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".reading").first).to_contain_text("succeeded / min")
    for label in ("15 min", "6 h", "24 h", "7 d"):
        page.get_by_role("button", name=label).click()
        expect(page.get_by_role("img", name=re.compile(f"Throughput, last {label}: 3 jobs"))).to_be_visible()


LABELS = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
  const box = plot.getBoundingClientRect();
  return [...plot.querySelectorAll("text.axis")].map((text) => {
    const inner = text.getBoundingClientRect();
    const inside = inner.left >= box.left && inner.right <= box.right && inner.bottom <= box.bottom + 1;
    return [text.getAttribute("text-anchor") === "middle" ? text.textContent : "", inside];
  });
})"""


def test_axis_labels_are_round_and_not_clipped_and_times_have_both_zones(lab, make_page):
    page = make_page(timezone_id="Asia/Kolkata")
    lab.do(a_few(lab.app))
    look(page, lab)
    for label, minutes in (("15 min", range(60)), ("6 h", (0, 30)), ("24 h", (0,))):
        page.get_by_role("button", name=label).click()
        expect(page.get_by_role("img", name=re.compile(f"Throughput, last {label}"))).to_be_visible()
        labels = page.evaluate(LABELS)
        assert all(inside for _, inside in labels), labels
        assert sum(bool(text) for text, _ in labels) > 7
        times = [text for text, _ in labels if ":" in text]  # midnight has a date
        assert {int(text[3:]) for text in times} <= set(minutes), times
    id = lab.enqueue("resize_image", "a.raw", 1, at=datetime(2031, 5, 4, 20, 30, tzinfo=UTC))
    look(page, lab, f"#/jobs/{id}")
    due = page.locator(".facts time[datetime^='2031']")
    expect(due).to_have_attribute("title", re.compile(r"May 5, 2031, 02:00:00 .*2031-05-04T20:30:00.000Z"))


def test_the_overview_shows_store_warnings(lab, page, monkeypatch):
    async def warnings():
        return (Finding(False, "maxmemory-policy is allkeys-lru", "CONFIG SET maxmemory-policy noeviction"),)

    lab.do(a_few(lab.app))
    monkeypatch.setattr(parts_of(lab.service.app).runtime._session.health, "warnings", warnings)
    look(page, lab)
    first = page.locator(".attention li").first
    expect(first).to_contain_text("maxmemory-policy is allkeys-lru: CONFIG SET maxmemory-policy noeviction")


def test_the_overview_is_live(lab, page):
    lab.enqueue("resize_image", "a.raw", 1)
    look(page, lab)
    queued = page.locator(".tiles").first.locator("a", has_text="queued").locator("b")
    expect(queued).to_have_text("1")
    lab.enqueue("resize_image", "b.raw", 1)
    expect(queued).to_have_text("2")
    lab.work_off()
    expect(queued).to_have_text("0")


def test_jobs_are_filtered_and_searched_while_typing(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab, "#/jobs")
    every = rows(page).count()
    assert every == 3 + 3 + 2 + 1 + 1
    page.get_by_role("button", name=re.compile("^dead")).click()
    expect(rows(page)).to_have_count(3)
    assert "state=dead" in page.url
    page.get_by_role("button", name="Clear filters").click()
    expect(rows(page)).to_have_count(every)
    search = page.get_by_label("Search")
    search.press_sequentially("ORDER 7001")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("order 7001 has no billing address")
    expect(page.locator(".pages")).to_contain_text(f"Searched {every} jobs")
    search.fill("uploads/0002")
    expect(rows(page)).to_have_count(1)
    search.fill("no such thing")
    expect(page.locator(".empty")).to_contain_text("No job matches")
    search.fill("")
    page.get_by_label("Queue", exact=True).select_option("exports")
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Queue", exact=True).select_option("")
    page.get_by_label("Tag").fill("money")
    expect(rows(page)).to_have_count(3)
    page.get_by_label("Tag").fill("")
    page.get_by_label("Task").fill("sync_stock")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Task").fill("")
    page.get_by_label("Enqueued").select_option("900")
    expect(rows(page)).to_have_count(every)
    page.reload()
    expect(page.get_by_label("Enqueued")).to_have_value("900")


def test_jobs_are_paginated(lab, page):
    async def many():
        task = parts_of(lab.app).registry.tasks["resize_image"]
        await lab.app.enqueue_many([lab.app.call(task, f"{n}.raw", n) for n in range(120)])

    lab.do(many())
    look(page, lab, "#/jobs")
    expect(rows(page)).to_have_count(50)
    expect(rows(page).first).to_contain_text("119.raw")
    page.get_by_role("button", name="Older").click()
    expect(rows(page).first).to_contain_text("69.raw")
    page.get_by_role("button", name="Older").click()
    expect(rows(page)).to_have_count(20)
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.get_by_role("button", name="Newer").click()
    expect(rows(page).first).to_contain_text("69.raw")


def test_selected_jobs_are_cancelled_and_all_matching_jobs_deleted(lab, page):
    async def many():
        task = parts_of(lab.app).registry.tasks["resize_image"]
        await lab.app.enqueue_many([lab.app.call(task, f"{n}.raw", n) for n in range(70)])

    lab.do(many())
    keep = lab.enqueue("send_invoice", 1, "2026-01")
    look(page, lab, "#/jobs?type=resize_image")
    for number in (0, 1):
        rows(page).nth(number).get_by_role("checkbox").check()
    selection = page.get_by_role("region", name="Selected jobs")
    expect(selection).to_contain_text("2 jobs selected")
    selection.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 2 jobs?")
    dialog.get_by_role("button", name="Go back").click()
    expect(selection).to_contain_text("2 jobs selected")
    selection.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.locator("#toasts")).to_contain_text("2 jobs cancelled")
    assert lab.do(lab.app.stats()).counts["cancelled"] == 2

    page.get_by_role("checkbox", name="Select all on this page").check()
    expect(selection).to_contain_text("50 jobs selected")
    selection.get_by_role("button", name="Select all matching jobs").click()
    expect(selection).to_contain_text("All 70 matching jobs selected")
    selection.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete 70 jobs").click()
    expect(page.locator("#toasts")).to_contain_text("70 jobs deleted")
    assert [job.id for job in lab.do(lab.app.jobs()).jobs] == [keep]


def test_a_job_page_shows_the_timeline_and_retries(lab, page):
    id = lab.enqueue("charge_card", 7001, "9.90", key="order-7001")
    lab.work_off()
    for _ in range(2):
        lab.do(due_now(lab, id))
        lab.work_off()
    assert lab.do(lab.app.job(id)).state == State.DEAD
    look(page, lab, f"#/jobs/{id}")
    expect(page.locator(".job-title .state")).to_have_text("dead")
    timeline = page.locator(".timeline li")
    expect(timeline).to_have_count(4)
    expect(timeline.nth(1)).to_contain_text("Attempt 1: failed")
    expect(timeline.nth(3)).to_contain_text("Attempt 3: dead")
    expect(page.locator(".panel.bad")).to_contain_text("ValueError: order 7001 has no billing address")
    expect(page.locator("details pre")).to_contain_text("Traceback (most recent call last)")
    page.locator("summary").click()
    lab.enqueue("resize_image", "a.raw", 1)
    page.wait_for_timeout(1500)  # the page is redrawn at least once a second
    expect(page.locator("details pre")).to_be_hidden()
    expect(page.get_by_role("region", name="Arguments")).to_contain_text("amount “9.90”")
    expect(page.locator(".facts")).to_contain_text("order-7001")
    expect(page.locator(".why")).to_contain_text("dlq retry")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".job-title .state")).to_have_text("queued")
    expect(page.locator(".why")).to_contain_text("No worker is alive")
    expect(page.locator(".timeline")).to_contain_text("Reset")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(page.locator(".job-title .state")).to_have_text("cancelled")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete job").click()
    expect(page.locator("h1")).to_have_text("Jobs")
    look(page, lab, f"#/jobs/{id}")
    expect(page.locator("h1")).to_have_text("Job not found")
    page.goto("about:blank")  # else it may ask again
    page.tolerate("status of 404")  # the browser logs the 404


def test_the_link_of_a_job_is_copied(lab, make_page):
    page = make_page(permissions=["clipboard-read", "clipboard-write"])
    id = lab.enqueue("resize_image", "a.raw", 1)
    look(page, lab, f"#/jobs/{id}")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#toasts")).to_contain_text("Link copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"{lab.address}/#/jobs/{id}"


def test_id_error_and_traceback_of_a_job_are_copied(lab, make_page):
    page = make_page(permissions=["clipboard-read", "clipboard-write"])
    lab.do(a_few(lab.app))
    job = lab.do(lab.app.jobs(state="dead")).jobs[0]
    look(page, lab, f"#/jobs/{job.id}")
    for what, text in (("id", job.id), ("error", job.error), ("traceback", job.traceback)):
        page.get_by_role("button", name=f"Copy {what}").click()
        expect(page.locator("#toasts")).to_contain_text(f"{what.capitalize()} copied")
        assert page.evaluate("navigator.clipboard.readText()") == text


def test_the_explanation_of_a_job_has_the_time_zone_of_the_page(lab, make_page):
    page = make_page(timezone_id="Asia/Tokyo")
    id = lab.enqueue("resize_image", "a.raw", 1, at=datetime(2031, 5, 4, 20, 30, tzinfo=UTC))
    look(page, lab, f"#/jobs/{id}")
    expect(page.locator(".why")).to_contain_text("05:30:00")
    expect(page.locator(".why")).not_to_contain_text("+00:00")


def test_a_running_job_is_followed_live(lab, page):
    from holdfast.worker.run.shell import allow_shell

    allow_shell(parts_of(lab.app))
    film = lab.enqueue("encode_film", "a.mov", 500)

    async def print_on():
        command = "echo one; printf half; while [ ! -e $GO ]; do sleep 0.05; done; echo ' two'; sleep 60"
        return (await lab.app.enqueue("shell", command=command, env={"GO": str(go)})).id

    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        printing = lab.do(print_on())
        lab.start_worker("default", "media")
        look(page, lab, f"#/jobs/{film}")
        expect(page.locator(".job-title .state")).to_have_text("running")
        expect(page.locator(".timeline")).to_contain_text("last heartbeat")
        expect(page.locator(".facts a[href='#/workers']")).to_be_visible()
        expect(page.get_by_role("progressbar")).to_be_visible()
        expect(page.get_by_role("region", name="Checkpoint")).to_be_visible()
        look(page, lab, f"#/jobs/{printing}")
        output = page.get_by_label("Output of the job")
        lines = output.locator(".log-line")
        expect(lines).to_have_text(["one", "half"])
        go.touch()
        expect(lines).to_have_text(["one", "half two"])
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        expect(page.locator("#toasts")).to_contain_text("Cancellation requested")
        look(page, lab, "#/workers")
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("10")
        page.locator(".held a").first.click()
        page.locator(".job-title").wait_for()


def test_a_queue_is_paused_and_resumed(lab, page):
    lab.enqueue("send_invoice", 1, "2026-01")
    look(page, lab, "#/queues")
    row = rows(page).filter(has_text="mail")
    expect(row).to_contain_text("no worker")
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause queue").click()
    expect(row).to_contain_text("paused")
    assert lab.do(lab.app.stats()).queues[0].paused
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    assert not lab.do(lab.app.stats()).queues[0].paused
    acted = lab.do(lab.app.audit.list()).entries
    assert [(one.action, one.surface) for one in acted] == [("resume", "dashboard"), ("pause", "dashboard")]


def test_paused_tasks_are_listed_with_the_queues_and_resumed(lab, page):
    lab.enqueue("send_invoice", 1, "2026-01")
    lab.do(lab.app.pause(task="send_invoice"))
    lab.do(lab.app.pause(task="send_invoice", where={"customer": 7}))
    look(page, lab, "#/queues")
    tasks = page.get_by_role("table", name="Paused tasks").locator("tbody tr")
    expect(tasks).to_have_count(2)
    expect(tasks.filter(has_text="customer = 7")).to_contain_text("send_invoice")
    expect(tasks.get_by_role("link", name="send_invoice").first).to_have_attribute("href", "#/jobs?type=send_invoice")
    tasks.filter(has_text="all").get_by_role("button", name="Resume").click()
    expect(tasks).to_have_count(1)
    assert [pause.where for pause in lab.do(lab.app.bulk.paused_tasks())] == [{"customer": 7}]
    tasks.get_by_role("button", name="Resume").click()
    expect(tasks).to_have_count(0)
    assert lab.do(lab.app.bulk.paused_tasks()) == []


def test_dead_letters_are_retried_by_group(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab, "#/dead")
    expect(rows(page)).to_have_count(2)
    group = rows(page).filter(has_text="order … has no billing address")
    expect(group).to_contain_text("2")
    group.get_by_role("button", name="Retry").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry 2 jobs").click()
    expect(rows(page)).to_have_count(1)
    assert lab.do(lab.app.stats()).counts["dead"] == 1
    rows(page).get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 job").click()
    expect(page.locator(".empty")).to_contain_text("No dead letters")
    assert lab.do(lab.app.stats()).counts["dead"] == 0


def test_errors_are_grouped_and_lead_to_their_jobs(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab, "#/errors")
    expect(rows(page)).to_have_count(3)
    group = rows(page).filter(has_text="order … has no billing address")
    expect(group).to_contain_text("first")
    expect(group).to_contain_text("dead 2")
    group.get_by_role("link", name="Jobs").click()
    expect(page.locator("h1")).to_have_text("Jobs")
    expect(rows(page)).to_have_count(2)


def test_keyboard_shortcuts(lab, page):
    ids = [lab.enqueue("resize_image", f"{n}.raw", n) for n in range(3)]
    look(page, lab)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("raw")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("1 job")
    page.keyboard.press("j")
    page.keyboard.press("k")
    focused = page.evaluate("document.activeElement.closest('[data-row]').querySelector('[data-open]').href")
    page.locator(f"a[href='#/jobs/{ids[1]}']").focus()
    page.keyboard.press("Enter")
    page.locator(".job-title").wait_for()
    assert focused.endswith(ids[1])
    for key, heading in {
        "q": "Queues",
        "w": "Workers",
        "d": "Dead letters",
        "e": "Errors",
        "b": "Jobs",
        "o": "Overview",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("h1")).to_have_text(heading)


def test_keys_pressed_during_a_search_apply_to_its_results(lab, page):
    first = lab.enqueue("resize_image", "holiday.raw", 1)
    lab.enqueue("resize_image", "holiday.png", 2)
    look(page, lab, "#/jobs")
    expect(rows(page)).to_have_count(2)
    held = []
    page.route(re.compile("v1/search.*text=raw"), lambda route: held.append(route))  # noqa: PLW0108  # Playwright sets attributes on it
    with page.expect_request(re.compile("v1/search.*text=raw")):
        page.get_by_label("Search").fill("raw")
        for key in ("Escape", "j", "x"):
            page.keyboard.press(key)
    expect(page.get_by_role("region", name="Selected jobs")).to_have_count(0)
    page.unroute_all()
    for route in held:
        with suppress(Error):  # aborted by a later search
            route.continue_()
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("1 job")
    expect(page.locator("tr.chosen [data-open]")).to_have_attribute("href", f"#/jobs/{first}")


def test_login_and_no_actions_without_the_role(lab, make_page):
    lab.do(a_few(lab.app))
    reader = lab.do(tokens.create(parts_of(lab.app).records, ["read"]))
    operator = lab.do(tokens.create(parts_of(lab.app).records, ["read", "operate"]))
    submitter = lab.do(tokens.create(parts_of(lab.app).records, ["submit"]))
    lab.service.auth.keyring._read_at = None
    page = make_page()
    page.goto(lab.address)
    token = page.get_by_label("Token")
    for wrong, words in (("hf_wrong_token", "unknown, revoked or expired"), (submitter, "lacks the role read")):
        token.fill(wrong)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text(words)
    token.fill(reader)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Overview")
    assert reader not in page.url
    expect(page.locator(".sidebar")).to_contain_text("read-only")
    id = lab.do(lab.app.jobs(state="dead")).jobs[0].id
    for where in ("#/", "#/jobs", f"#/jobs/{id}", "#/queues", "#/dead", "#/errors"):
        page.goto(f"{lab.address}/{where}")
        page.locator(".page h1").wait_for()
        page.locator(".loading").wait_for(state="detached")
        for label in ("Retry", "Cancel", "Delete", "Pause", "Retry all"):
            expect(page.get_by_role("button", name=label, exact=True)).to_have_count(0)
        expect(page.get_by_role("checkbox")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").fill(operator)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Retry all")).to_have_count(0)
    look(page, lab, "#/dead")
    expect(page.get_by_role("button", name="Retry all")).to_be_visible()
    page.tolerate("status of 401", "status of 403")  # the browser logs these responses


def test_a_lost_connection_is_shown_and_recovered(lab, page, make_lab, store_url):
    look(page, lab)
    expect(page.locator(".connection")).to_have_text("Live")
    page.context.set_offline(True)
    lab.service.stop()  # ends the stream, as a stopping server does
    banner = page.get_by_role("alert")
    expect(banner).to_contain_text("Connection lost")
    lab.enqueue("resize_image", "a.raw", 1)
    lab.service.stopping.clear()
    page.context.set_offline(False)
    page.get_by_role("button", name="Retry now").click()
    expect(banner).to_have_count(0)
    expect(page.locator(".tiles").first.locator("a", has_text="queued").locator("b")).to_have_text("1")
    page.tolerate("ERR_INTERNET_DISCONNECTED")


def test_light_dark_and_back(lab, page):
    look(page, lab)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    switch = page.get_by_role("button", name="Theme: light, dark or system")
    switch.click()
    assert page.evaluate(ground) == light
    switch.click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.locator(".page h1").wait_for()
    assert page.evaluate(ground) == dark


async def due_now(lab, id):
    if (await lab.app.job(id)).state == State.FAILED:
        await lab.app.retry(id)
