"""Holdfast for Django: `INSTALLED_APPS = ["holdfast.contrib.django", …]`.

`get_app` returns the app of this process, with the store and the settings of the Django project. `HoldfastBackend` is a
backend of `django.tasks`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...app import Holdfast
    from .backend import HoldfastBackend

    app: Holdfast

__all__ = ["HoldfastBackend", "get_app"]
_making = threading.RLock()


def get_app() -> Holdfast:
    """The app of this process, made from the Django settings at the first call; tasks may be declared on it at import.

    Needs configured settings, but no loaded apps. The store is found at the first use, and wrong settings are reported
    by `manage.py check`, or then.
    """
    found = made_app()
    if found is None:
        from .process_app import make

        with _making:
            found = made_app() or globals().setdefault("app", make())  # a child process loads it by this name
    return found


def made_app() -> Holdfast | None:
    """The app of this process, if something has used it."""
    return globals().get("app")


def __getattr__(name: str) -> Any:
    if name == "app":  # `-A holdfast.contrib.django:app`
        import django
        from django.apps import apps

        if not apps.ready:
            django.setup()
        return get_app()
    if name == "HoldfastBackend":
        from .backend import HoldfastBackend

        return HoldfastBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
