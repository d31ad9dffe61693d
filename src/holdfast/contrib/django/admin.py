"""Jobs in Django's admin: a list and a page per job, with retry and cancel for users who have the permission.

The pages read and write through the app, not through the ORM, so they work with every store. What they write passes the
policy of the HTTP service, as in the dashboard: a shell job, for example, cannot be retried.
"""

from __future__ import annotations

from typing import Any

import msgspec
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, path, reverse

from ...app import parts_of
from ...client.search import Filter, Search
from ...core.errors import HoldfastError, JobNotFound
from ...core.job import TERMINAL, State
from ...http.job_policy import JobPolicy
from ...observe.actors import acting, named
from ...store.group_commit import guard
from .models import Job
from .process_app import get_app

PER_PAGE = 50
"""Jobs on a page of the list."""
FILTERS = ("state", "queue", "task", "text")
"""Query parameters of the list."""
DONE = {"retry": "Retried", "cancel": "Cancelled"}
"""The operations, and what the log of the admin calls each."""


def _never(*_: object) -> bool:
    return False


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """The pages of jobs."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name="holdfast_job_changelist"),
            path("<path:object_id>/change/", view(self.job_view), name="holdfast_job_change"),
        ]

    has_add_permission: Any = _never
    has_change_permission: Any = _never
    has_delete_permission: Any = _never

    @transaction.non_atomic_requests  # a transaction of the request would lock a SQLite file that has the jobs too
    def changelist_view(self, request: Any, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The newest jobs that match the filters; as POST, an operation on the selected ones."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            self._operate(request, request.POST.getlist("id"))
            return HttpResponseRedirect(request.get_full_path())
        chosen = {name: request.GET.get(name) or None for name in FILTERS}
        try:
            found = get_app().sync.bulk.search(Filter(**chosen), limit=PER_PAGE, cursor=request.GET.get("cursor"))
        except HoldfastError as error:
            self.message_user(request, str(error), messages.ERROR)
            found = Search([], None, 0, None)
        query = request.GET.copy()
        query.pop("cursor", None)
        context = {
            "title": "Select job to view",
            "found": found,
            "chosen": chosen,
            "states": [state.value for state in State],
            "query": query,
        }
        return self._render(request, "change_list", context | (extra_context or {}))

    @transaction.non_atomic_requests
    def job_view(self, request: Any, object_id: str) -> HttpResponse:
        """One job; as POST, an operation on it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        id, jobs = unquote(object_id), get_app().sync
        if request.method == "POST":
            self._operate(request, [id])
            return HttpResponseRedirect(request.get_full_path())
        try:
            job, why = jobs.job(id), jobs.explain(id)
        except JobNotFound as error:
            raise Http404(str(error)) from error
        ended = job.state in TERMINAL
        rows = {
            "State": job.state,
            "Reason": None if ended else why.reason,
            "Queue": job.queue,
            "Attempt": f"{job.attempt} of {job.max_attempts}",
            "Created": job.created_at,
            "Due": None if ended else job.run_at,
            "Started": job.started_at,
            "Finished": job.finished_at,
            "Worker": job.worker,
            "Unique key": job.key,
            "Tags": ", ".join(job.tags),
        }
        texts = {
            "Arguments": _json(job.payload),
            "Result": None if job.result is None else _json(job.result),
            "Error": job.last_error if job.traceback is None else None,
            "Traceback": job.traceback,
        }
        context = {"title": job.task, "subtitle": job.id, "job": job, "ended": ended, "rows": rows, "texts": texts}
        return self._render(request, "change_form", context)

    def _operate(self, request: Any, ids: list[str]) -> None:
        """Retry or cancel jobs."""
        action = request.POST.get("action", "")
        if action not in DONE or not self._may(request, action):
            raise PermissionDenied
        for id in ids:
            if self._changed(request, action, id):
                self.log_change(request, Job(id=id), f"{DONE[action]}.")
                self.message_user(request, f"{DONE[action]} job {id}.", messages.SUCCESS)

    def _changed(self, request: Any, action: str, id: str) -> bool:
        app = get_app()
        before = guard.set(JobPolicy(parts_of(app), frozenset(), frozenset()).check)
        try:
            with acting(named(request.user.get_username(), "django")):
                if action == "retry":
                    app.sync.retry(id)
                    return True
                if app.sync.cancel(id):
                    return True
            self.message_user(request, f"Job {id} has ended: it was not cancelled.", messages.WARNING)
        except HoldfastError as error:
            self.message_user(request, str(error), messages.ERROR)
        finally:
            guard.reset(before)
        return False

    def _may(self, request: Any, action: str) -> bool:
        return request.user.has_perm(f"holdfast.{action}_job")

    def _render(self, request: Any, template: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        allowed = [action for action in DONE if self._may(request, action)]
        whole = {**self.admin_site.each_context(request), "opts": self.opts, "actions": allowed, "dashboard": _mount()}
        return TemplateResponse(request, f"admin/holdfast/job/{template}.html", whole | context)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def _mount() -> str | None:
    """The URL of the dashboard, if the project has it."""
    try:
        return reverse("holdfast:dashboard")
    except NoReverseMatch:
        return None
