"""An incident: a span selected on a chart, percentiles, an error group's page, and ten jobs retried before the rest."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from holdfast import Worker
from holdfast.app import parts_of
from support.browser import look
from support.eventually import eventually
from support.scene import a_few

pytestmark = [pytest.mark.extended, pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)]


async def reports_that_die(app, number):
    task = parts_of(app).registry.tasks["monthly_report"]
    await app.enqueue_many([app.call(task, f"month-{n}") for n in range(number)])
    await Worker(app, until_idle=True).run()


def test_a_span_of_a_chart_leads_to_what_failed_in_it(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab)
    table = page.get_by_role("table", name="Waiting and run times by queue")
    row = table.locator("tr", has_text="payments")
    assert [row.locator(f"[data-label={label}]").inner_text() for label in ("Ended", "Failed")] == ["9", "9"]
    expect(row.locator("[data-label='Run p95']")).to_have_text(re.compile(r"^\d+ ms$"))
    page.get_by_role("button", name="Task", exact=True).click()
    expect(page.get_by_role("table", name="Waiting and run times by task")).to_contain_text("charge_card")
    plot = page.get_by_role("region", name="Failures").locator("svg.plot")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 9, box["y"] + 60, steps=3)
    expect(plot.locator(".band")).to_be_visible()
    page.mouse.up()
    expect(page.locator("h1")).to_have_text("Incident")
    summary = page.get_by_role("table", name="Before, within and after the span", exact=True)
    expect(summary.locator("tr", has_text="Within").locator("[data-label=Failed]")).to_have_text("10")
    expect(summary.locator("tr", has_text="Before").locator("[data-label=Failed]")).to_have_text("0")
    groups = page.get_by_role("table", name="Error groups before, within and after the span")
    expect(groups.locator("tbody tr")).to_have_count(3)
    expect(groups).to_contain_text("ValueError: order … has no billing address")
    tasks = page.get_by_role("table", name="Tasks before, within and after the span")
    expect(tasks.locator("tr", has_text="charge_card").locator("[data-label=Failed]")).to_contain_text("0 → 9 → 0")
    for name in ("Queues", "Workers", "Versions"):
        expect(page.get_by_role("table", name=f"{name} before, within and after the span")).to_be_visible()
    shown = page.url
    page.reload()
    expect(groups.locator("tbody tr")).to_have_count(3)
    assert page.url == shown, "the span is in the address"
    page.get_by_role("link", name="Twice as long").click()
    expect(page.locator(".title")).to_contain_text("min; compared")
    assert page.url != shown


def test_a_span_is_selected_with_the_keyboard(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab)
    plot = page.get_by_role("region", name="Throughput").locator("svg.plot")
    assert "Shift and the arrow keys" in plot.get_attribute("aria-label")
    plot.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Shift+ArrowLeft")
    expect(plot.locator(".band")).to_be_visible()
    page.keyboard.press("Escape")
    expect(plot.locator(".band")).to_be_hidden()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Incident")
    expect(page.locator(".title")).to_contain_text("3 min")


def test_an_address_without_a_span_says_how_to_select_one(lab, page):
    for where in ("#/incident", "#/incident?start=x&end=%3Cb%3E", "#/incident?start=2020-01-01&end=2026-01-01"):
        look(page, lab, where)
        expect(page.locator(".empty")).to_contain_text("Drag over a chart")


def test_an_error_group_has_its_chart_versions_and_workers(lab, page):
    lab.do(reports_that_die(lab.app, 12))
    [group] = lab.do(lab.app.errors.groups()).groups
    look(page, lab, "#/errors")
    page.locator("[data-row] h2 a").click()
    expect(page.locator("h1")).to_have_text("monthly_report")
    assert page.url.endswith(f"#/errors/{group.fingerprint}")
    expect(page.locator(".group-facts")).to_contain_text("12 failed attempts of 12 jobs · first seen")
    expect(page.get_by_role("region", name="Failed attempts")).to_contain_text("12 in the last 24 h")
    for name, text in (("Versions", "12"), ("Workers", " · "), ("Queues", "reports")):
        expect(page.get_by_role("region", name=name)).to_contain_text(text)
    page.get_by_role("button", name="7 d").click()
    expect(page.get_by_role("region", name="Failed attempts")).to_contain_text("12 in the last 7 d")
    look(page, lab, "#/errors/%3Cscript%3E")
    expect(page.locator("h1")).to_have_text("Error group not found")
    page.goto("about:blank")
    page.tolerate("status of 404")  # the browser reports the 404


def test_ten_jobs_are_retried_before_the_rest(lab, page):
    lab.do(reports_that_die(lab.app, 25))
    look(page, lab, "#/dead")
    page.locator("[data-row]").get_by_role("button", name="Retry ten first").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 10 jobs first?")
    dialog.get_by_role("button", name="Retry 10 jobs").click()
    expect(dialog).to_contain_text("0 of 10 jobs ended")
    assert lab.do(lab.app.stats()).counts["dead"] == 15
    lab.work_off()
    expect(dialog).to_contain_text("0 of 10 jobs succeeded, 10 dead")
    dialog.get_by_role("button", name="Retry the rest…").click()
    rest = page.get_by_role("dialog", name="Retry jobs")
    expect(rest).to_contain_text("Retry 25 jobs?")
    rest.get_by_role("button", name="Go back").click()
    assert lab.do(lab.app.stats()).counts == lab.do(lab.app.stats()).counts | {"dead": 25}


def test_a_worker_is_listed_by_host_and_version_and_after_its_end(lab, page):
    lab.start_worker("media", concurrency=3)
    film = lab.enqueue("encode_film", "a.mov", 500)

    async def running():
        async def busy():
            return [one for one in await lab.app.workers() if one.jobs and one.memory]

        [worker] = await eventually(busy)
        await lab.app.timeseries.record_workers()
        return worker

    worker = lab.do(running())
    look(page, lab, "#/workers")
    table = page.get_by_role("table", name=f"Live workers of {worker.node}, Holdfast {worker.version}")
    row = table.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("[data-label=Slots]")).to_contain_text("1 / 3")
    expect(row.locator("[data-label=Runs] a")).to_have_attribute("href", f"#/jobs/{film}")
    expect(row.locator("[data-label=Memory]")).to_have_text(re.compile(r"^[\d.]+ MB$"))
    expect(row.locator("[data-label=CPU]")).to_have_text(re.compile(r"^\d+ %$"))
    lab.stop_workers()
    lab.do(lab.app.timeseries.record_workers())
    ended = page.get_by_role("table", name="Workers that ended within the last hour")
    expect(ended.locator("tbody tr")).to_contain_text(f"pid {worker.pid}")
    expect(page.locator(".empty")).to_contain_text("No worker is alive")
