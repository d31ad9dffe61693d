"""The command itself: its groups, and what an error looks like to the person who typed it.

Exit codes: 0 done, 1 the queue says no, 2 the command is wrong, 3 the store cannot be reached.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from ..core.errors import ConfigError, HoldfastError, InvalidJob, MissingExtra, OutcomeUnknown, StoreUnavailable
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
    "migrate": "schema:migrate",
    "doctor": "schema:doctor",
    "bucket": "bucket:app",
    "top": "top:top",
    "bench": "bench:bench",
    "demo": "demo:demo",
}
"""Each command and group, in the order of the help: the module of this folder, and the function or group in it."""


class Commands(MutableMapping[str, Any]):
    """The commands by name. Each is imported and built when it is asked for: to build all takes 50 ms."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module, _, attribute = COMMANDS[name].partition(":")
            found = getattr(import_module(f".{module}", __package__), attribute)
            if isinstance(found, typer.Typer):
                self._built[name] = get_group(found)
            else:
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
    """The command with all of its groups."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = Commands()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # click's own signature
        """In the order of the table, with none built."""
        return list(COMMANDS)

    def invoke(self, ctx: Any) -> Any:
        """As ever; but where -A stands behind a command that does not take it, say where it goes."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            wrong: Any = error  # typer keeps the class of "no such option" to itself
            if getattr(wrong, "option_name", None) in ("-A", "--app"):
                words = wrong.ctx.command_path.removeprefix(ctx.command_path).strip()
                wrong.message += f"; it stands in front: holdfast -A module:app {words}"
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
    url: Annotated[str | None, typer.Option("--url", help="The store; may also stand behind the command.")] = None,
    application: Annotated[str | None, typer.Option("-A", "--app", help="The application, as module:app.")] = None,
) -> None:
    """A job queue on the storage you already have."""
    connect.root.update(url=url, app=application)


def main() -> None:
    """Run the command; a user's mistake is one clear line, never a traceback."""
    try:
        app()
    except HoldfastError as error:
        from .printing import told

        typer.echo(": ".join(["holdfast", told(error), *getattr(error, "__notes__", ())]), err=True)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read has seen enough
        sys.stderr.close()
        sys.exit(0)


def exit_code(error: HoldfastError) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, ConfigError | InvalidJob | MissingExtra):
        return 2
    return 3 if isinstance(error, StoreUnavailable | OutcomeUnknown) else 1
