"""The admin and the dashboard of the Django example in a real browser, under a WSGI and an ASGI server."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import browser as browsers
from support.django_site import Site

SERVERS = {
    "wsgi": ("django", "runserver", "--noreload", "127.0.0.1:PORT"),
    "asgi": ("uvicorn", "config.asgi:application", "--port", "PORT"),
}
SETUP = """
from django.contrib.auth.models import Permission, User
from holdfast import Worker
from shop.tasks import app, confirm
User.objects.create_superuser("root", password="root")
viewer = User.objects.create_user("viewer", password="viewer", is_staff=True)
viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
confirm.using(max_attempts=1).sync.enqueue(404)
Worker(app, until_idle=True).run_sync()
confirm.using(delay=3600).sync.enqueue(1)
"""


def log_in(page, address: str, name: str) -> None:
    page.goto(f"{address}/dashboard/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(name)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.extended
@pytest.mark.parametrize(("server", "store"), [("wsgi", "sqlite"), ("asgi", "postgres")])
def test_the_dashboard_and_the_admin_in_a_browser(server: str, store: str, tmp_path: Path):
    if (why := browsers.why_not()) is not None:
        pytest.skip(why)
    from playwright.sync_api import expect

    site = Site(tmp_path, store)
    site.manage("migrate")
    site.shell(SETUP)
    with site.serving(*SERVERS[server]) as address, browsers.browser() as launched:
        expect.set_options(timeout=60_000)
        page = launched.new_context().new_page()
        page.set_default_timeout(60_000)
        log_in(page, address, "root")
        expect(page.locator(".connection")).to_have_text("Live")
        expect(page.locator(".tiles").first.locator("a", has_text="dead").locator("b")).to_have_text("1")

        page.goto(f"{address}/dashboard/#/queues")
        page.get_by_role("button", name="Pause", exact=True).click()
        page.get_by_role("button", name="Pause queue").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()

        page.goto(f"{address}/admin/holdfast/job/?state=dead")
        page.locator("#result_list tbody a").click()
        expect(page.locator("#content")).to_contain_text("DoesNotExist")
        page.get_by_role("button", name="Retry job").click()
        expect(page.locator(".messagelist")).to_contain_text("Retried job")
        page.get_by_role("link", name="Dashboard").click()
        expect(page.locator(".page h1")).to_be_visible()
        page.goto(f"{address}/dashboard/#/jobs?state=queued")
        expect(page.locator("[data-row]")).to_have_count(1)
        expect(page.get_by_role("alert")).to_have_count(0)

        viewer = launched.new_context().new_page()
        log_in(viewer, address, "viewer")
        expect(viewer.locator(".where")).to_contain_text("read-only")
        viewer.goto(f"{address}/dashboard/#/queues")
        expect(viewer.locator("[data-row], tbody tr").first).to_be_visible()
        expect(viewer.get_by_role("button", name="Resume")).to_have_count(0)
        viewer.goto(f"{address}/admin/holdfast/job/")
        expect(viewer.locator("#result_list tbody tr")).to_have_count(2)
        expect(viewer.locator("[name=action]")).to_have_count(0)
