"""The app of this process. It is a global of the package: a child process loads it as `holdfast.contrib.django:app`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...app import Holdfast  # which most commands of `manage.py` do not need

_package = vars(sys.modules[__name__.rpartition(".")[0]])


def made_app() -> Holdfast | None:
    """The app of this process, if something has used it."""
    return _package.get("app")


def keep(app: Holdfast) -> Holdfast:
    """Keep this app, unless another was made meanwhile; return the one that is kept."""
    return _package.setdefault("app", app)
