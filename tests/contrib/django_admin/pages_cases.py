"""The pages of jobs in Django's admin."""

from __future__ import annotations

import io
import re
from unittest import mock

from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.db import connection
from django.test import TestCase, TransactionTestCase
from shop.tasks import app

from holdfast.contrib.django.test import bench

from .users import ALL, user

LIST = "/admin/holdfast/job/"


@app.task(max_attempts=1)
def fail(text: str) -> None:
    raise ValueError(f"<b>{text}</b>")


def page(id: str) -> str:
    return f"{LIST}{id.replace('_', '_5F')}/change/"


class AdminTests(TestCase):
    def setUp(self):
        self.jobs = self.enterContext(bench())
        self.waiting = fail.using(delay=60, queue="mail").sync.enqueue("later").id
        self.dead = fail.sync.enqueue("now").id
        self.jobs.work(check=False)

    def state(self, id):
        return app.sync.job(id).state

    def log_in(self, *permissions, staff=True):
        self.client.force_login(user("ada", *permissions, staff=staff))

    def ids(self, query=""):
        text = self.client.get(LIST + query).content.decode()
        return re.findall(r"/job/([\w-]+)/change/", text)

    def test_only_staff_users_with_the_permission_see_jobs(self):
        for path in (LIST, page(self.dead)):
            self.assertRedirects(self.client.get(path), f"/admin/login/?next={path}")
        self.log_in("retry_job", "cancel_job", "operate")
        for path in (LIST, page(self.dead)):
            assert self.client.get(path).status_code == 403
            assert self.client.post(path, {"action": "retry", "id": self.dead}).status_code == 403
        self.client.force_login(user("bob", *ALL, staff=False))
        self.assertRedirects(self.client.post(LIST, {"action": "retry"}), f"/admin/login/?next={LIST}")
        assert self.state(self.dead) == "dead"

    def test_viewers_cannot_write(self):
        self.log_in("view_job")
        for path, id, action in (
            (page(self.dead), self.dead, "retry"),
            (page(self.waiting), self.waiting, "cancel"),
            (LIST, self.dead, "retry"),
            (LIST, self.waiting, "cancel"),
        ):
            self.assertNotContains(self.client.get(path), 'name="action"')
            assert self.client.post(path, {"action": action, "id": id}).status_code == 403
        assert (self.state(self.dead), self.state(self.waiting)) == ("dead", "scheduled")

    def test_retry_and_cancel_are_permissions_of_their_own(self):
        self.log_in("view_job", "retry_job")
        self.assertNotContains(self.client.get(page(self.waiting)), "Cancel job")
        assert self.client.post(page(self.waiting), {"action": "cancel"}).status_code == 403
        self.assertContains(self.client.get(page(self.dead)), "Retry job")
        answer = self.client.post(page(self.dead), {"action": "retry"}, follow=True)
        self.assertContains(answer, f"Retried job {self.dead}.")
        assert (self.state(self.dead), self.state(self.waiting)) == ("queued", "scheduled")
        self.client.force_login(user("bob", "view_job", "cancel_job"))
        assert self.client.post(page(self.waiting), {"action": "retry"}).status_code == 403
        self.client.post(page(self.waiting), {"action": "cancel"})
        assert self.state(self.waiting) == "cancelled"
        logged = {(entry.user.username, entry.object_id, entry.change_message) for entry in LogEntry.objects.all()}
        assert logged == {("ada", self.dead, "Retried."), ("bob", self.waiting, "Cancelled.")}
        acted = [(one.actor, one.surface, one.action, one.target["id"]) for one in app.sync.audit.list(limit=2).entries]
        assert acted == [("bob", "django", "cancel", self.waiting), ("ada", "django", "retry", self.dead)]

    def test_several_jobs_are_changed_and_each_refusal_is_shown(self):
        self.log_in("view_job", "cancel_job")
        answer = self.client.post(LIST, {"action": "cancel", "id": [self.dead, self.waiting, "x"]}, follow=True)
        self.assertContains(answer, f"Job {self.dead} has ended: it was not cancelled.")
        self.assertContains(answer, f"Cancelled job {self.waiting}.")
        self.assertContains(answer, "There is no job")
        assert self.client.post(LIST, {"action": "delete", "id": self.dead}).status_code == 403

    def test_a_shell_job_cannot_be_retried(self):
        id = app.sync.submit("shell", b'{"command": "true"}', json=True).id
        app.sync.cancel(id)
        self.log_in(*ALL)
        answer = self.client.post(page(id), {"action": "retry"}, follow=True)
        self.assertContains(answer, "shell command is not allowed")
        assert self.state(id) == "cancelled"

    def test_the_list_is_filtered_searched_and_paged(self):
        self.log_in("view_job")
        assert self.ids() == [self.dead, self.waiting]
        assert self.ids("?state=dead") == [self.dead]
        assert self.ids("?queue=mail") == [self.waiting]
        assert self.ids("?task=nothing") == []
        assert self.ids("?text=later") == [self.waiting]
        with mock.patch("holdfast.contrib.django.admin.PER_PAGE", 1):
            assert self.ids() == [self.dead]
            cursor = re.search(r'href="(\?[^"]*cursor=[^"]*)">Older', self.client.get(LIST).content.decode())[1]
            assert self.ids(cursor.replace("&amp;", "&")) == [self.waiting]

    def test_wrong_filters_and_ids_are_no_server_errors(self):
        self.log_in("view_job")
        for query in ("?cursor=zz", "?state=nothing", f"?text={'x' * 500}"):
            self.assertContains(self.client.get(LIST + query), 'class="error"')
        assert self.client.get(page("nothing")).status_code == 404

    def test_a_job_shows_its_arguments_and_error_as_text(self):
        self.log_in("view_job")
        for path in (LIST, page(self.dead)):
            self.assertContains(self.client.get(path), "&lt;b&gt;now&lt;/b&gt;")
            self.assertNotContains(self.client.get(path), "<b>now")
        self.assertContains(self.client.get(page(self.waiting)), "&quot;text&quot;: &quot;later&quot;")

    def test_forms_need_the_csrf_token(self):
        self.client.handler.enforce_csrf_checks = True
        self.log_in(*ALL)
        assert self.client.post(page(self.dead), {"action": "retry"}).status_code == 403
        assert self.state(self.dead) == "dead"

    def test_the_index_and_commands_know_the_model_without_a_table(self):
        self.log_in("view_job")
        self.assertContains(self.client.get("/admin/"), LIST)
        call_command("makemigrations", "--check", stdout=io.StringIO())
        call_command("dumpdata", "--all", stdout=io.StringIO())


class AtomicRequestTests(TransactionTestCase):
    def test_a_request_does_not_wait_for_its_own_transaction(self):
        id = fail.sync.enqueue("now").id
        with mock.patch.dict(connection.settings_dict, ATOMIC_REQUESTS=True):
            self.client.force_login(user("ada", *ALL))
            self.client.post(page(id), {"action": "cancel"})
            assert app.sync.job(id).state == "cancelled"
            assert self.client.post(f"/dashboard/v1/jobs/{id}/retry").status_code == 200
        app.sync.cancel(id)
