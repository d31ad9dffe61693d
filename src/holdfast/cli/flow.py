"""`holdfast flow …`: list and show flows. `holdfast cancel` and `holdfast retry` take flow ids too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion, options
from .connect import parts_of, print_none, watching, with_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..core.job import Record
    from ..flows.status import FlowStatus

LINES = 50
"""Maximum number of jobs printed for one flow."""
ERROR_WIDTH = 60
"""Maximum characters of a job's error in its row."""


app = typer.Typer(
    help="Flows: jobs with dependencies. `holdfast cancel` and `holdfast retry` take a flow's id too.",
    no_args_is_help=True,
)


@app.command("list")
def list_all(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            help="blocked, succeeded, dead or cancelled; repeatable.",
            autocompletion=completion.states,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of flows.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Cursor printed by the previous page.")] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List flows, newest first. A flow is blocked until all of its jobs have ended."""

    async def work(app: Holdfast) -> None:
        from .printing import document, moment, table

        page = await app.flows.list(state=state, limit=limit, cursor=cursor)
        if as_json:
            document(page)
        elif not page.flows:
            print_none(app, f"{' or '.join(state)} flows" if state else "flows")
        else:
            rows = [(one.id, one.name, one.state, one.jobs, moment(one.created_at)) for one in page.flows]
            table("Flows", ("Flow", "Name", "State", "Jobs", "Created"), rows, keep=("Flow", "State"))
            if page.cursor is not None:
                print(f"More flows follow: --cursor {page.cursor}")

    with_app(url, work)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="FLOW", show_default=False)],
    url: options.Url = None,
    as_json: options.AsJson = False,
    watch: options.Watch = False,
) -> None:
    """Show the progress of a flow and the states of its jobs. --watch stops when the flow has ended."""

    async def refresh(app: Holdfast) -> bool:
        from msgspec import to_builtins

        from ..core.job import TERMINAL
        from .printing import document, json

        status = await app.flows.handle(id).status()
        members = [_member(record) for record in await parts_of(app).flows.members(id)]
        if as_json:
            (json if watch else document)(to_builtins(status) | {"members": members})
        else:
            _print(status, members)
        return status.state in TERMINAL

    watching(url, refresh, watch=watch, as_json=as_json)


def _member(record: Record) -> dict[str, Any]:
    from ..core import internal

    extra = internal.read(record.extra)
    number = int(record.id.rpartition(".")[2])
    after = [each for each, _ in extra.after] if extra.allow_unfinished is None else list(range(number))
    return {"number": number, "task": record.task, "state": record.state, "after": after, "error": record.error}


def _print(status: FlowStatus, members: list[dict[str, Any]]) -> None:
    from .printing import echo, table

    ended = sum(status.counts.get(state, 0) for state in ("succeeded", "dead", "cancelled"))
    echo(f"Flow {status.id} ({status.name}): {status.state}, {ended} of {status.jobs} jobs have ended.")
    if status.cancelling:
        print("The flow is being cancelled: waiting jobs are cancelled, running jobs are asked to stop.")
    if status.error:
        echo(status.error)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status.counts.items()))
    rows = [
        (one["number"], one["task"], one["state"], _numbers(one["after"]), _line(one["error"]))
        for one in members[:LINES]
    ]
    table(f"Jobs: {counts}", ("Job", "Task", "State", "After", "Error"), rows, keep=("Job", "State"))
    if len(members) > LINES:
        print(f"{len(members) - LINES} more jobs are not shown; --json prints all of them.")
    print(f"To show one job: holdfast show {status.id}.0")


def _numbers(after: list[int]) -> str:
    """Up to three numbers, or the first and the last of more."""
    return ", ".join(map(str, after)) if len(after) <= 3 else f"{after[0]} … {after[-1]}"


def _line(error: str | None) -> str:
    line = (error or "").partition("\n")[0]
    return line if len(line) <= ERROR_WIDTH else line[: ERROR_WIDTH - 1] + "…"
