"""The command itself: its groups, and what an error looks like to the person who typed it.

Exit codes: 0 done, 1 the queue says no, 2 the command is wrong, 3 the store cannot be reached.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import ConfigError, HoldfastError, InvalidJob, MissingExtra, OutcomeUnknown, StoreUnavailable
from ..version import __version__
from . import (
    bench,
    config,
    connect,
    demo,
    dlq,
    enqueue,
    flow,
    jobs,
    log,
    logs,
    operate,
    schedule,
    schema,
    serve,
    signal,
    status,
    token,
    top,
    webhook,
    worker,
)


class Root(TyperGroup):
    """The command with all of its groups."""

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
app.command("enqueue")(enqueue.enqueue)
app.command("status")(status.status)
app.command("list")(jobs.list_jobs)
app.command("show")(jobs.show)
app.command("logs")(logs.logs)
app.command("log")(log.log)
app.command("cancel")(jobs.cancel)
app.command("retry")(jobs.retry)
app.command("delete")(jobs.delete)
app.command("explain")(jobs.explain)
app.add_typer(worker.app, name="worker")
app.add_typer(dlq.app, name="dlq")
app.add_typer(config.app, name="config")
app.command("serve")(serve.serve)
app.add_typer(token.app, name="token")
app.add_typer(webhook.app, name="webhook")
app.add_typer(schedule.app, name="schedule")
app.add_typer(flow.app, name="flow")
app.command("signal")(signal.signal)
app.command("queues")(status.queues)
app.command("pause")(operate.pause)
app.command("resume")(operate.resume)
app.command("purge")(operate.purge)
app.command("migrate")(schema.migrate)
app.command("doctor")(schema.doctor)
app.command("top")(top.top)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)


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
