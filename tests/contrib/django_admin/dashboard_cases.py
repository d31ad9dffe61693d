"""The dashboard among the pages of a Django project: who may read and write, by every route."""

from __future__ import annotations

import json
import re

from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client, TestCase, override_settings
from shop.tasks import app, confirm

from holdfast.contrib.django.test import bench
from holdfast.http.service import Service

from .users import ALL, user

SITE = "/dashboard/"


def routes():
    """Every route, with its role, and with an example for each parameter."""
    return [(one.role, one.method, SITE + re.sub(r"{\w+}", "x", one.path[1:])) for one in Service(app).endpoints]


def writes():
    return [route for route in routes() if route[1] != "GET"]


class DashboardTests(TestCase):
    def setUp(self):
        self.enterContext(bench())
        self.id = confirm.sync.enqueue(1).id

    def log_in(self, *permissions, staff=True, **options):
        self.client = Client(**options)
        self.client.force_login(user("ada", *permissions, staff=staff))

    def call(self, method, path, body="{}", **headers):
        return self.client.generic(method, path, body, "application/json", headers=headers)

    def problem(self, answer):
        assert answer["Content-Type"] == "application/problem+json"
        return json.loads(answer.content)["type"].removeprefix("urn:holdfast:problem:")

    def refused(self):
        """Neither data nor writes, on any route."""
        for path in ("v1/stats", "v1/me", "openapi.json", "dashboard/main.js", "health"):
            assert self.problem(self.client.get(SITE + path)) == "forbidden"
        for _, method, path in writes():
            assert self.problem(self.call(method, path)) == "forbidden"

    def test_a_visitor_is_asked_to_log_in(self):
        self.assertRedirects(self.client.get(SITE), f"/admin/login/?next={SITE}")
        self.refused()

    def test_a_user_who_is_not_staff_is_refused(self):
        self.log_in(*ALL, staff=False)
        self.assertRedirects(self.client.get(SITE), f"/admin/login/?next={SITE}", fetch_redirect_response=False)
        self.refused()

    def test_a_staff_user_without_permission_is_refused(self):
        self.log_in("operate", "retry_job", "cancel_job")
        assert self.client.get(SITE).status_code == 403
        self.refused()

    def test_a_viewer_reads_and_cannot_write_by_any_route(self):
        self.log_in("view_job", "retry_job", "cancel_job")
        self.assertContains(self.client.get(SITE), '<meta name="csrf-token" data-header="X-CSRFTOKEN"')
        assert self.client.get(f"{SITE}v1/me").json()["roles"] == ["read"]
        assert self.client.get(f"{SITE}v1/stats").json()["counts"]["queued"] == 1
        assert "javascript" in self.client.get(f"{SITE}dashboard/main.js")["Content-Type"]
        for role, method, path in writes():
            if role != "read":  # a search or a count is no write
                assert self.problem(self.call(method, path)) == "forbidden", path
        assert app.sync.job(self.id).state == "queued"

    def test_an_operator_can_do_what_operators_do_and_nothing_else(self):
        self.log_in("view_job", "operate")
        assert self.client.get(f"{SITE}v1/me").json()["roles"] == ["read", "operate"]
        for role, method, path in writes():
            if role not in ("read", "operate"):
                assert self.problem(self.call(method, path)) == "forbidden", path
        assert self.call("POST", f"{SITE}v1/jobs/{self.id}/cancel").status_code == 200
        assert app.sync.job(self.id).state == "cancelled"
        retried = self.call("POST", f"{SITE}v1/bulk", '{"action": "retry", "filter": {"state": ["cancelled"]}}')
        assert retried.json()["changed"] == 1
        night = '{"cron": "0 3 * * *", "type": "confirm", "payload": {"order_id": 1}}'
        assert self.call("PUT", f"{SITE}v1/schedules/night", night).status_code == 200
        assert self.call("POST", f"{SITE}v1/schedules/night/run").status_code == 200
        shell = night.replace("confirm", "shell")
        assert self.problem(self.call("PUT", f"{SITE}v1/schedules/shell", shell)) == "shell-refused"

    def test_no_route_that_an_operator_may_use_fails_on_the_loop_of_the_service(self):
        self.log_in("view_job", "operate")
        for role, method, path in routes():
            if role in ("read", "operate", None):
                answer = self.call(method, path) if method != "GET" else self.client.get(path)
                assert answer.status_code < 500, (method, path, answer.content)

    def test_a_write_needs_the_csrf_token_of_the_page_and_the_own_origin(self):
        self.log_in("view_job", "operate", enforce_csrf_checks=True)
        token = re.search(r'content="(\w+)">\n</head>', self.client.get(SITE).content.decode())[1]
        path = f"{SITE}v1/jobs/{self.id}/cancel"
        for headers in (
            {},
            {"Origin": "http://testserver"},
            {"X-CSRFToken": "x" * 64, "Origin": "http://testserver"},
            {"X-CSRFToken": token, "Origin": "http://evil.example"},
            {"X-CSRFToken": token, "Origin": "null"},
        ):
            assert self.call("POST", path, **headers).status_code == 403, headers
        assert app.sync.job(self.id).state == "queued"
        own = {"X-CSRFToken": token, "Origin": "http://testserver"}
        assert self.call("POST", path, **own).status_code == 200

    @override_settings(CSRF_USE_SESSIONS=True, CSRF_HEADER_NAME="HTTP_X_OTHER")
    def test_the_csrf_token_may_be_in_the_session_and_have_another_header(self):
        self.log_in("view_job", "operate", enforce_csrf_checks=True)
        found = re.search(r'data-header="([\w-]+)" content="(\w+)"', self.client.get(SITE).content.decode())
        path, own = f"{SITE}v1/jobs/{self.id}/cancel", {found[1]: found[2], "Origin": "http://testserver"}
        assert self.call("POST", path, Origin="http://testserver").status_code == 403
        assert self.call("POST", path, **own).status_code == 200

    @override_settings(CSRF_TRUSTED_ORIGINS=["https://*.example.com"])
    def test_holdfast_checks_the_origin_too(self):
        self.log_in("view_job", "operate")
        answer = self.call("POST", f"{SITE}v1/jobs/{self.id}/cancel", Origin="https://shop.example.com")
        assert self.problem(answer) == "wrong-origin"

    def test_an_unknown_host_is_refused(self):
        self.log_in(*ALL)
        assert self.client.get(SITE, headers={"Host": "evil.example"}).status_code == 400
        assert self.client.get(f"{SITE}v1/stats", headers={"Host": "evil.example"}).status_code == 400

    def test_a_token_of_the_api_gives_no_other_rights(self):
        self.log_in("view_job")
        assert self.call("POST", f"{SITE}v1/jobs", Authorization="Bearer hf_x_y").status_code == 403

    def test_the_event_stream_is_polled(self):
        self.log_in("view_job")
        first = self.client.get(f"{SITE}v1/events")
        assert first["Content-Type"] == "text/event-stream; charset=utf-8"
        cursor = re.search(rb"id: (\S+)", first.content)[1].decode()
        app.sync.cancel(self.id)
        second = self.client.get(f"{SITE}v1/events", headers={"Last-Event-ID": cursor})
        assert self.id.encode() in second.content

    def test_the_page_is_not_cached_and_the_files_are(self):
        self.log_in("view_job")
        page = self.client.get(SITE)
        assert (page["Cache-Control"], page.has_header("ETag")) == ("no-store", False)
        assert "default-src 'none'" in page["Content-Security-Policy"]
        file = self.client.get(f"{SITE}dashboard/api.js")
        again = self.client.get(f"{SITE}dashboard/api.js", headers={"If-None-Match": file["ETag"]})
        assert (again.status_code, again.content) == (304, b"")

    def test_it_works_under_asgi(self):
        client = AsyncClient()
        async_to_sync(client.aforce_login)(user("ada", "view_job", "operate"))
        stats = async_to_sync(client.get)(f"{SITE}v1/stats")
        assert stats.json()["counts"]["queued"] == 1
        answer = async_to_sync(client.post)(f"{SITE}v1/jobs/{self.id}/cancel")
        assert answer.status_code == 200
