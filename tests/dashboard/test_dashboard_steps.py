"""The page of a job with durable steps: finished steps, what it waits for, and its resumption."""

from __future__ import annotations

from playwright.sync_api import expect

from holdfast import Context
from support.browser import look


def test_a_waiting_job_shows_its_signal_and_steps(lab, page):
    @lab.app.task
    async def order(ctx: Context, number: int) -> object:
        await ctx.step("charge", lambda: {"receipt": f"r-{number}"})
        return await ctx.wait_for(f"approval-{number}", timeout=3600)

    id = lab.enqueue("order", 42)
    lab.work_off()
    look(page, lab, f"#/jobs/{id}")
    expect(page.locator(".why")).to_contain_text("It waits for signal 'approval-42', at most until")
    expect(page.locator(".why")).to_contain_text("1 step is done: charge")
    expect(page.get_by_text('"receipt":"r-42"')).to_be_visible()
    assert lab.do(lab.app.signal("approval-42", {"by": "ann"})) == 1
    lab.work_off()
    expect(page.locator(".job-title")).to_contain_text("succeeded")
    expect(page.get_by_text('"by":"ann"').first).to_be_visible()
