"""The app of a Django process: makes it, and configures it again when a test changes the settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from ...app import Holdfast, parts_of
from ...core.errors import ConfigError
from . import configuration
from .connections import around_call
from .current_app import keep, made_app
from .transactions import find_transaction

_immediate = ExitStack()
"""The inline mode, while the setting IMMEDIATE is on."""


_making = threading.RLock()


def get_app() -> Holdfast:
    """The app of this process, made from the Django settings at the first call; tasks may be declared on it at import.

    Needs configured settings, but no loaded apps. The store is found at the first use, and wrong settings are reported
    by `manage.py check`, or then.
    """
    found = made_app()
    if found is None:
        with _making:
            found = made_app() or keep(_make())
    return found


def _make() -> Holdfast:
    """An app with the store and the settings of the project. Its tasks see fresh database connections."""
    if apps.apps_ready and not apps.is_installed(__package__):
        raise ConfigError(f"Holdfast is not installed in this Django project: add {__package__!r} to INSTALLED_APPS")
    app = Holdfast()
    app.around_call.append(around_call)
    configure(app)
    return app


def configure(app: Holdfast) -> None:
    """Take the settings of the project."""
    configuration.current.cache_clear()
    _immediate.close()
    parts = parts_of(app)
    parts.enqueue.find_transaction = find_transaction
    try:
        found = configuration.current()
        parts.configure(found.find_url, found.settings)
    except ConfigError as error:  # modules with tasks can be imported, so that `manage.py check` can report it
        parts.configure(_refuse(str(error)), {})
        return
    if found.immediate:
        from .immediate import immediately  # late: only tests need it

        _immediate.enter_context(immediately(app))
    _discover(app)


def _refuse(message: str) -> Callable[[], str]:
    """Finds no store: each use of the app raises the error."""

    def find_url() -> str:
        raise ConfigError(message)

    return find_url


def _discover(app: Holdfast) -> None:
    """Add the modules that define tasks: those in the settings, and `tasks.py` of every installed app."""
    parts, names = parts_of(app), list(configuration.current().imports)
    if apps.apps_ready:
        names += [f"{one.name}.tasks" for one in apps.get_app_configs() if module_has_submodule(one.module, "tasks")]
    parts.imports += [name for name in names if name not in parts.imports]
    parts.registry.trust_only(parts.imports)
