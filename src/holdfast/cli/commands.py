"""The commands of `holdfast`, each imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from inspect import get_annotations
from typing import Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption
from typer.main import get_command, get_group

from ..version import __version__
from . import connect

GROUPS = {
    "First steps": {
        "init": "init:init",
        "demo": "demo:demo",
    },
    "Jobs": {
        "enqueue": "enqueue:enqueue",
        "list": "jobs:list_jobs",
        "show": "jobs:show",
        "logs": "logs:logs",
        "stream": "stream:stream",
        "wait": "wait:wait",
        "explain": "jobs:explain",
        "cancel": "jobs:cancel",
        "retry": "jobs:retry",
        "delete": "jobs:delete",
        "edit": "edit:edit",
        "clone": "edit:clone",
        "signal": "signal:signal",
        "flow": "flow:app",
    },
    "Queues and schedules": {
        "status": "status:status",
        "queues": "status:queues",
        "pause": "operate:pause",
        "resume": "operate:resume",
        "purge": "operate:purge",
        "move": "operate:move",
        "dlq": "dlq:app",
        "schedule": "schedule:app",
    },
    "Workers and servers": {
        "worker": "worker:app",
        "top": "top:top",
        "serve": "serve:serve",
        "token": "token:app",
        "webhook": "webhook:app",
    },
    "Stores": {
        "audit": "audit:app",
        "config": "config:app",
        "migrate": "schema:migrate",
        "doctor": "schema:doctor",
        "check": "check:check",
        "bucket": "bucket:app",
        "bench": "bench:bench",
    },
}
"""Commands in help order, under their headings: name to `module:attribute` in this package."""
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}
NO_STORE = ("init", "demo")
"""Commands without a store of the user: they take no `SHARED` option."""


def _keep(ctx: Any, parameter: Any, value: str | None) -> None:
    """Store the value of a shared option; the last one of a command line counts."""
    if value is not None or ctx.parent is None:
        connect.root[parameter.name] = value


SHARED = (
    TyperOption(
        param_decls=["url", "--url"], expose_value=False, callback=_keep,
        help="The store, such as sqlite:///jobs.db. (default: HOLDFAST_URL, or ./holdfast.db)",
    ),
    TyperOption(
        param_decls=["app", "-A", "--app"], expose_value=False, callback=_keep, metavar="MODULE:APP",
        help="The application.",
    ),
)  # fmt: skip
"""Options of every command, before its name and after it."""


def _share(command: Any) -> None:
    """Add the shared options to a command, and to the commands of a group; its own of the same name has precedence."""
    taken = {name for parameter in command.params for name in parameter.opts}
    command.params += [option for option in SHARED if taken.isdisjoint(option.opts)]
    for below in getattr(command, "commands", {}).values():
        _share(below)


class Commands(MutableMapping[str, Any]):
    """The commands by name. Each is imported and built on first use: building all takes 50 ms."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module, _, attribute = COMMANDS[name].partition(":")
            found = getattr(import_module(f".{module}", __package__), attribute)
            if isinstance(found, typer.Typer):
                self._built[name] = get_group(found)
            else:
                found.__annotations__ = get_annotations(found, eval_str=True)  # once; typer would do it four times
                alone = typer.Typer(add_completion=False)
                alone.command(name)(found)
                self._built[name] = get_command(alone)
            built = self._built[name]
            built.name, built.rich_help_panel = name, next(title for title, group in GROUPS.items() if name in group)
            if name not in NO_STORE:
                _share(built)
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Root(TyperGroup):
    """The root command group."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = Commands()
        self.params += SHARED

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # click's own signature
        """The command names in the order of `COMMANDS`, without importing any."""
        return list(COMMANDS)


app = typer.Typer(
    name="holdfast",
    cls=Root,
    help="A job queue on the storage you already have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(on: bool) -> None:
    if on:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # its callback does the work
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """A job queue on the storage you already have."""
