"""Holdfast for Django: `INSTALLED_APPS = ["holdfast.contrib.django", …]`.

`get_app` returns the app of this process, with the store and the settings of the Django project. `HoldfastBackend` is a
backend of `django.tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...app import Holdfast
    from .backend import HoldfastBackend
    from .process_app import get_app

    app: Holdfast

__all__ = ["HoldfastBackend", "get_app"]


def __getattr__(name: str) -> Any:
    if name == "app":  # `-A holdfast.contrib.django:app`
        import django
        from django.apps import apps

        if not apps.ready:
            django.setup()
        from .process_app import get_app

        return get_app()
    if name == "get_app":
        from .process_app import get_app

        return get_app
    if name == "HoldfastBackend":
        from .backend import HoldfastBackend

        return HoldfastBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
