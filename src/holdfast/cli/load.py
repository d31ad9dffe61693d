"""From `-A module:app` to the user's app."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from ..app import Holdfast
from ..errors import ConfigError


def load_app(name: str) -> Holdfast:
    """The app that `module:attribute` names, with the current folder importable as `python -m` has it."""
    module_name, _, attribute = name.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise ConfigError(f"-A takes module:app, such as -A myproject.jobs:app, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise ConfigError(f"-A {name}: there is no module {error.name!r} here ({here}) or installed") from None
        raise
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, Holdfast):
        apps = sorted(key for key, value in vars(module).items() if isinstance(value, Holdfast))
        hint = f"; it has: {', '.join(apps)}" if apps else ""
        raise ConfigError(f"-A {name}: {module_name} has no Holdfast app named {attribute or 'app'!r}{hint}")
    return found
