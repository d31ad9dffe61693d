"""Holdfast in a Flask application: an extension, the command `flask holdfast`, and the dashboard behind your login."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote

from ..app import Holdfast, parts_of
from ..core.errors import requires
from ..http import asgi, limits

with requires("holdfast.contrib.flask", "flask", "flask"):
    import click
    from flask import Blueprint, Flask, Response, request
    from flask.cli import ScriptInfo
    from flask.typing import ResponseReturnValue

APP = "holdfast.contrib.flask_app"
"""The module that a new process imports to get the app with its Flask application."""
Guard = Callable[[], ResponseReturnValue | None]


class AppContext:
    """The hook around each call of a task: the context of the Flask application."""

    latest: Flask | None = None
    """The application that was set up last in this process."""

    def __init__(self) -> None:
        self.application: Flask
        self.given: dict[str, Any] = {}
        """The settings that the app was set up with."""

    def __call__(self, _: object) -> AbstractContextManager[Any]:
        return self.application.app_context()


def init_app(application: Flask, queue: Holdfast) -> None:
    """Set the app up with `config["HOLDFAST_…"]`, run its tasks in the application context, add `flask holdfast`.

    May be called again with another Flask application, as tests do: tasks then run in the context of the last one.
    """
    hook = next((one for one in queue.around_call if isinstance(one, AppContext)), None)
    if hook is None:
        hook = AppContext()
        queue.around_call.append(hook)
        parts_of(queue).imports.append(APP)  # for tasks in separate processes
    given = application.config.get_namespace("HOLDFAST_")
    if given != hook.given:
        queue.setup(**given)
    hook.given, hook.application = given, application
    AppContext.latest = application
    application.extensions["holdfast"] = queue
    application.cli.add_command(_command)


def dashboard(queue: Holdfast, guard: Guard, *, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> Blueprint:
    """The dashboard and the HTTP API as a blueprint: `register_blueprint(dashboard(…), url_prefix="/queue")`.

    `guard` is called before each request: it returns None to allow everything, or the response that refuses the
    request, such as a redirect to your login page; it may call `abort`. It names the user for the audit log with
    `request.environ["holdfast.actor"] = …`. `hosts`, `origins`: see `holdfast.http.asgi`.
    """
    service = asgi(queue, unguarded=True, hosts=hosts, origins=origins)
    from ..http.call import ACTOR  # late: they need the extra `server`, as the service does
    from .bridge import ask

    blueprint = Blueprint("holdfast", __name__)
    blueprint.before_request(guard)

    @blueprint.route("/", defaults={"path": ""}, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    @blueprint.route("/<path:path>", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    def handle(path: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        body = request.stream.read(max(limits.BATCH, service.body_limit) + 1)
        headers = [(name.lower(), value) for name, value in request.headers if name.lower() != "content-length"]
        headers.append(("content-length", str(len(body))))
        scope = {
            "type": "http",
            "method": request.method,
            "path": f"/{path}",
            "raw_path": quote(f"/{path}").encode(),
            "query_string": request.query_string,
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            ACTOR: request.environ.get(ACTOR),
        }
        answer = ask(service, scope, body)
        response = Response(answer.body, answer.status)
        response.headers.clear()
        response.headers.extend([(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers])
        return response

    return blueprint


@click.command(
    "holdfast",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Holdfast's workers, jobs and queues.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def _command(info: ScriptInfo, words: tuple[str, ...]) -> None:
    """The command line of Holdfast for this application."""
    from ..cli.commands import app
    from ..cli.main import run

    if info.app_import_path is not None:  # also for worker processes
        os.environ["FLASK_APP"] = info.app_import_path
    run(lambda: app(["-A", APP, *words], prog_name="flask holdfast"))
