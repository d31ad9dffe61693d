"""Loads the user's app from `-A module:app`, and finds the address from which a new process can load an app."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import runpy
import sys
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from types import ModuleType

from .app import Holdfast, parts_of
from .core.errors import ConfigError, HoldfastError

loading: list[str] = []
"""The program that is being run here only to get the app that it defines."""


def refuse_while_loading() -> None:
    """Reject a program that starts a worker on import: it would start itself again and again."""
    if loading:
        raise ConfigError(
            f"{loading[0]} starts a worker when imported: move the call that starts it under"
            " `if __name__ == '__main__'`"
        )


def address_of(app: Holdfast) -> str:
    """The address of this app for a new process: `module:name`, or `file.py:name` for a program's own file."""
    found: list[str] = []
    modules: list[tuple[str, object]] = list(sys.modules.items())  # some programs put other things there
    for name, module in modules:
        if isinstance(module, ModuleType) and (where := _place(name, module)) is not None:
            found += [f"{where}:{attribute}" for attribute, value in list(vars(module).items()) if value is app]
    if found:
        return min(found, key=_from_a_file)  # a module that can be imported, where there is one
    raise ConfigError(
        "tasks with run_in='isolated' or 'process' need an app that a new process can import: make the app a global"
        " variable of a module"
    )


def _from_a_file(address: str) -> bool:
    return address.rpartition(":")[0].endswith(".py")


def _place(name: str, module: ModuleType) -> str | None:
    if name not in ("__main__", "__mp_main__"):
        return name
    spec = getattr(module, "__spec__", None)
    if spec is not None and not spec.name.endswith("__main__"):
        return spec.name
    file = getattr(module, "__file__", None)
    return None if file is None else str(Path(file).resolve())


def load_address(address: str, imports: Iterable[str] = ()) -> Holdfast:
    """The app at an address made by `address_of`, with the tasks of these modules."""
    where, _, attribute = address.rpartition(":")
    if not _from_a_file(address):
        return load_app(address, imports)
    # Like multiprocessing: the program's file, run under another name, so that `if __name__ == "__main__"` stays out.
    loading.append(where)
    found = runpy.run_path(where, run_name="__mp_main__").get(attribute)
    loading.clear()
    if not isinstance(found, Holdfast):
        raise ConfigError(
            f"{where} defines no Holdfast app {attribute!r} when imported; define it at module level, outside functions"
            " and `if __name__ == '__main__'`"
        )
    import_tasks(found, imports)
    return found


def load_app(name: str, imports: Iterable[str] = ()) -> Holdfast:
    """The app that `module:attribute` names, with its tasks, and those of these modules.

    The current folder is importable, as `python -m` has it.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise ConfigError(f"-A takes module:app, such as -A myproject.jobs:app, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    _set_up_django()
    module = _import(module_name, f"-A {name}")
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, Holdfast):
        apps = sorted(key for key, value in vars(module).items() if isinstance(value, Holdfast))
        hint = f"; its apps: {', '.join(apps)}" if apps else "; create one with Holdfast(…)"
        raise ConfigError(f"-A {name}: module {module_name} has no Holdfast app named {attribute or 'app'!r}{hint}")
    import_tasks(found, imports)
    return found


def _set_up_django() -> None:
    """Load the Django project of this process, if it has one: its modules can be imported only afterwards."""
    name = os.environ.get("DJANGO_SETTINGS_MODULE")
    if not name or importlib.util.find_spec("django") is None:
        return
    try:
        importlib.import_module("django").setup()
    except HoldfastError:
        raise
    except Exception as error:
        raise _failed(f"DJANGO_SETTINGS_MODULE={name}: the Django project cannot be loaded", error) from error


def import_tasks(app: Holdfast, names: Iterable[str] = ()) -> None:
    """Import the modules that define the tasks of an app: those that it names, and these."""
    imports = parts_of(app).imports
    imports += [name for name in names if name not in imports]
    for name in imports:
        _import(name, "imports= or -I")


def task_modules(package: str) -> list[str]:
    """The modules named `tasks` of a package and of all packages in it."""
    root = _import(package, "--discover")
    if not hasattr(root, "__path__"):
        raise ConfigError(f"--discover {package}: this is a module, not a package; use -I {package} to import it")
    below = pkgutil.walk_packages(root.__path__, f"{package}.")
    found = [module.name for module in below if module.name.rpartition(".")[2] == "tasks"]
    if not found:
        raise ConfigError(
            f"--discover {package}: neither this package nor one in it has a module tasks.py; use -I for others"
        )
    return found


def _import(name: str, option: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name not in accumulate(name.split("."), "{}.{}".format):
            raise _failed(_unusable(name, option), error) from error  # a module that this one imports
        raise ConfigError(
            f"{option}: there is no module {error.name!r} in the current folder ({Path.cwd()}) or among the installed"
            " packages; check the name"
        ) from None
    except HoldfastError as error:
        for line in _user_lines(error)[-1:]:
            error.add_note(f"in {line}")
        raise
    except Exception as error:
        raise _failed(_unusable(name, option), error) from error


def _unusable(name: str, option: str) -> str:
    return f"{option}: module {name!r} cannot be imported"


def _failed(problem: str, error: Exception) -> ConfigError:
    """The error for code of the user that cannot be imported, with the lines of the user's own files."""
    kind, lines = type(error).__name__, _user_lines(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        lines.append(f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}")
    what = error.msg if isinstance(error, SyntaxError) else error
    return ConfigError("\n  ".join([f"{problem}: {kind}: {what}", *lines]))


def _user_lines(error: Exception) -> list[str]:
    """The lines through which an error came, of files that are neither Python's, nor installed, nor Holdfast's."""
    import sysconfig  # late: only for mistakes
    import traceback

    others = {*map(Path, map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))), Path(__file__).parent}
    return [
        f"{frame.filename}, line {frame.lineno}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if (file := Path(frame.filename)).is_absolute() and others.isdisjoint(file.parents)  # `<frozen …>` is relative
    ]
