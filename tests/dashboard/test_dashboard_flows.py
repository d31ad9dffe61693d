"""The pages of a flow and its jobs: progress, what a job waits for, and links."""

from __future__ import annotations

from playwright.sync_api import expect

from holdfast import Flow
from support.browser import look


def test_a_flow_and_its_jobs_link_to_each_other(lab, page):
    @lab.app.task
    async def one(number: int) -> int:
        return number + 1

    flow = Flow("numbers")
    flow.add(one, flow.add(one, 1))
    id = lab.do(lab.app.enqueue_flow(flow)).id
    look(page, lab, f"#/jobs/{id}.1")
    expect(page.locator(".why")).to_contain_text(f"It waits for job {id}.0 to end")
    page.get_by_role("link", name=id).first.click()
    expect(page.get_by_text("Jobs of this flow")).to_be_visible()
    expect(page.locator(".why")).to_contain_text("It waits for its jobs to end")
    lab.work_off()
    expect(page.locator(".job-title")).to_contain_text("succeeded")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    expect(page.get_by_text("Jobs of this flow")).to_be_visible()
