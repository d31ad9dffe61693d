"""Options shared by several commands."""

from __future__ import annotations

from typing import Annotated

import typer

from . import completion

Url = Annotated[
    str | None,
    typer.Option("--url", help="The store, such as sqlite:///jobs.db. (default: HOLDFAST_URL, or ./holdfast.db)"),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("-I", "--import", metavar="MODULE", help="Import a module that defines tasks; repeatable."),
]
Discover = Annotated[
    list[str] | None,
    typer.Option(metavar="PACKAGE", help="Import all modules named tasks of a package; repeatable."),
]
MaxAttempts = Annotated[
    int | None,
    typer.Option("--max-retries", "--max-attempts", help="Attempts in total, including the first: with 1, no retry."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C; in a pipe, once without --json.")
]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id.", show_default=False, autocompletion=completion.job_ids)
]
State = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-s",
        help="A state (pending, processing, completed are aliases); repeatable.",
        autocompletion=completion.states,
    ),
]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Only this queue.", autocompletion=completion.queues)]
TaskName = Annotated[str | None, typer.Option("--task", help="Only this task.", autocompletion=completion.tasks)]
Tag = Annotated[str | None, typer.Option("--tag", help="Only jobs with this tag.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print how many jobs match, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
