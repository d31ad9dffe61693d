"""The dashboard among the pages of a Django project, for staff users.

1. Every request passes Django's checks of Host, login and CSRF, then Holdfast's of Host, Origin and role.
2. The permission `holdfast.view_job` gives the role `read`, `holdfast.operate` adds the role `operate`. No other role
   is given: jobs are neither submitted nor claimed through the dashboard, but an operator can run schedules.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpResponse
from django.middleware.csrf import get_token
from django.utils.html import format_html
from django.views.decorators.csrf import csrf_protect

from ...app import Holdfast
from ...core.errors import SERVER, requires
from ...http import asgi
from ...http.problems import FORBIDDEN, Refused
from .process_app import get_app

with requires("the dashboard", "server", *SERVER):
    from ...http.call import ACTOR, ROLES, problem
    from ...http.service import Service
    from ..bridge import Reply, ask

PASSED_ON = ("Origin", "Content-Type", "Last-Event-ID", "If-None-Match", "Accept-Encoding", "Holdfast-Client")
"""The request's headers that the service gets, besides Host."""
PER_PAGE = (b"etag", b"cache-control", b"content-length")
"""Headers of the page that do not hold once it has the user's CSRF token."""


@transaction.non_atomic_requests  # a transaction of the request would lock a SQLite file that has the jobs too
@staff_member_required
@csrf_protect
def page(request: Any) -> HttpResponse:
    """The dashboard's page."""
    roles = _roles(request)
    if not roles:
        raise PermissionDenied
    reply = _ask(request, "", roles, ())
    header = settings.CSRF_HEADER_NAME.removeprefix("HTTP_").replace("_", "-")
    meta = format_html('<meta name="csrf-token" data-header="{}" content="{}">\n', header, get_token(request))
    body = reply.body.replace(b"</head>", str(meta).encode() + b"</head>", 1)
    kept = [(name, value) for name, value in reply.headers if name not in PER_PAGE]
    return _response(Reply(reply.status, [*kept, (b"cache-control", b"no-store")], body))


@transaction.non_atomic_requests
@csrf_protect
def resource(request: Any, path: str) -> HttpResponse:
    """A file of the dashboard, or an answer of the HTTP API."""
    roles = _roles(request)
    if not roles:  # a redirect to the login page would be of no use to a script
        detail = "You are not logged in as a staff user who may view jobs: load the page again to log in."
        answer = problem(Refused(FORBIDDEN, detail))
        return _response(Reply(answer.status, answer.headers, answer.body))
    return _response(_ask(request, path, roles, PASSED_ON))


def _roles(request: Any) -> frozenset[str]:
    """The roles of the user, by permission; none for users who are not staff."""
    user = request.user
    if not (user.is_active and user.is_staff and user.has_perm("holdfast.view_job")):
        return frozenset()
    return frozenset({"read", "operate"} if user.has_perm("holdfast.operate") else {"read"})


def _ask(request: Any, path: str, roles: frozenset[str], passed_on: tuple[str, ...]) -> Reply:
    headers = {name: value for name in passed_on if (value := request.headers.get(name))}
    headers["Host"] = request.get_host()
    scope = {
        "type": "http",
        "method": request.method,
        "path": f"/{path}",
        "raw_path": quote(f"/{path}").encode(),
        "root_path": "",
        "query_string": request.META.get("QUERY_STRING", "").encode("utf-8", "surrogateescape"),
        "headers": [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
        ROLES: roles,
        ACTOR: request.user.get_username(),
    }
    return ask(_service(get_app()), scope, request.body)


@lru_cache(maxsize=1)
def _service(app: Holdfast) -> Service:
    # Django has checked the Host (ALLOWED_HOSTS).
    return asgi(app, unguarded=True, hosts=["*"], origins=settings.CSRF_TRUSTED_ORIGINS)


os.register_at_fork(after_in_child=_service.cache_clear)  # its events and tasks belong to a loop of the parent


def _response(reply: Reply) -> HttpResponse:
    response = HttpResponse(reply.body, status=reply.status)
    for name, value in reply.headers:
        response[name.decode("latin-1")] = value.decode("latin-1")
    return response
