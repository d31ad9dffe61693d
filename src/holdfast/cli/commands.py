"""The commands of `holdfast`, each imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from inspect import get_annotations
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from ..version import __version__
from . import connect

COMMANDS = {
    "enqueue": "enqueue:enqueue",
    "status": "status:status",
    "list": "jobs:list_jobs",
    "show": "jobs:show",
    "logs": "logs:logs",
    "cancel": "jobs:cancel",
    "retry": "jobs:retry",
    "delete": "jobs:delete",
    "explain": "jobs:explain",
    "worker": "worker:app",
    "dlq": "dlq:app",
    "config": "config:app",
    "serve": "serve:serve",
    "token": "token:app",
    "webhook": "webhook:app",
    "schedule": "schedule:app",
    "flow": "flow:app",
    "signal": "signal:signal",
    "queues": "status:queues",
    "pause": "operate:pause",
    "resume": "operate:resume",
    "purge": "operate:purge",
    "move": "operate:move",
    "migrate": "schema:migrate",
    "doctor": "schema:doctor",
    "check": "check:check",
    "bucket": "bucket:app",
    "top": "top:top",
    "bench": "bench:bench",
    "demo": "demo:demo",
}
"""Commands and groups in help order: name to `module:attribute` in this package."""


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
            self._built[name].name = name
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

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # click's own signature
        """The command names in the order of `COMMANDS`, without importing any."""
        return list(COMMANDS)

    def invoke(self, ctx: Any) -> Any:
        """Invoke a command; if -A follows a command that does not take it, the error shows the right position."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            wrong: Any = error  # typer does not export the class of "no such option"
            if getattr(wrong, "option_name", None) in ("-A", "--app"):
                command = wrong.ctx.command_path.removeprefix(ctx.command_path).strip()
                wrong.message += f"; use: holdfast -A module:app {command}"
            raise


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
    version: Annotated[  # noqa: ARG001  # its callback does the work
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
    url: Annotated[str | None, typer.Option("--url", help="The store; also accepted after the command.")] = None,
    application: Annotated[str | None, typer.Option("-A", "--app", help="The application, as module:app.")] = None,
) -> None:
    """A job queue on the storage you already have."""
    connect.root.update(url=url, app=application)
