"""The Holdfast app of the Flask application that FLASK_APP names: `-A holdfast.contrib.flask_app`."""

from __future__ import annotations

import os

from flask.cli import NoAppException, ScriptInfo

from ..app import Holdfast
from ..core.errors import ConfigError
from .flask import AppContext


def _load() -> Holdfast:
    try:
        application = AppContext.latest or ScriptInfo(os.environ.get("FLASK_APP")).load_app()
    except NoAppException as error:
        raise ConfigError(f"the Flask application was not found: {error.format_message()}") from None
    if "holdfast" not in application.extensions:
        raise ConfigError(f"Flask application {application.name!r} has no Holdfast app: call init_app(…, queue)")
    return application.extensions["holdfast"]


app = _load()
