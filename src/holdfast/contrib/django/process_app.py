"""Makes the app of a Django process, and configures it again when a test changes the settings."""

from __future__ import annotations

from contextlib import ExitStack

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from ...app import Holdfast, parts_of
from . import configuration
from .connections import around_call
from .transactions import find_transaction

_immediate = ExitStack()
"""The inline mode, while the setting IMMEDIATE is on."""


def make() -> Holdfast:
    """An app with the store and the settings of the project. Its tasks see fresh database connections."""
    app = Holdfast()
    app.around_call.append(around_call)
    configure(app)
    return app


def configure(app: Holdfast) -> None:
    """Take the settings of the project."""
    configuration.current.cache_clear()
    _immediate.close()
    found, parts = configuration.current(), parts_of(app)
    parts.configure(found.find_url, found.settings)
    parts.enqueue.find_transaction = find_transaction
    if found.immediate:
        from .test import immediately  # late: only tests need it

        _immediate.enter_context(immediately(app))
    discover(app)


def discover(app: Holdfast) -> None:
    """Add the modules that define tasks: those in the settings, and `tasks.py` of every installed app."""
    parts, names = parts_of(app), list(configuration.current().imports)
    if apps.apps_ready:
        names += [f"{one.name}.tasks" for one in apps.get_app_configs() if module_has_submodule(one.module, "tasks")]
    parts.imports += [name for name in names if name not in parts.imports]
    parts.registry.trust_only(parts.imports)
