"""The Django app `holdfast`: connects signals and checks. It does not import Holdfast's core."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from .current_app import made_app


class HoldfastConfig(AppConfig):
    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """All apps are loaded: their tasks can be found, and signals be received."""
        from . import checks, connections  # late: they need loaded apps

        connection_created.connect(connections.leave_checkpoints, dispatch_uid="holdfast.checkpoints")
        connection_created.connect(connections.close_before_drop, dispatch_uid="holdfast.drop")
        setting_changed.connect(_reconfigure, dispatch_uid="holdfast.settings")
        post_migrate.connect(_migrate, sender=self, dispatch_uid="holdfast.migrate")
        checks.register()
        if (app := made_app()) is not None:
            from .process_app import configure

            configure(app)


def _reconfigure(setting: str, **_: object) -> None:
    """A test changes the settings."""
    if setting in ("HOLDFAST", "DATABASES"):
        from . import configuration

        configuration.current.cache_clear()
        if (app := made_app()) is not None:
            from .process_app import configure

            configure(app)


def _migrate(using: str, **_: object) -> None:
    """Create the tables also where the migrations are switched off, as in some tests."""
    from . import configuration
    from .schema import migrate

    migrate(using)
    if configuration.current().in_memory:
        _reconfigure("DATABASES")  # `flush` has emptied the database of a test: begin with an empty store, too
