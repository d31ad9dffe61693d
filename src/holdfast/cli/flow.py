"""`holdfast flow …`: jobs that wait for each other. Whole flows are cancelled and retried like jobs, by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .connect import parts_of, say_none, watching, with_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..core.job import Record
    from ..flows.service import FlowStatus

LINES = 50
"""Jobs of a flow that are printed, at the most."""
ERROR_WIDTH = 60
"""Characters of a job's error in its line."""


app = typer.Typer(
    help="Jobs that wait for each other. `holdfast cancel` and `holdfast retry` take a flow's id too.",
    no_args_is_help=True,
)


@app.command("list")
def list_all(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", help="blocked, succeeded, dead or cancelled; may be given again."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Where the last page ended.")] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List flows, newest first. One that has not ended is blocked: it waits for its jobs."""

    async def look(app: Holdfast) -> None:
        from .printing import document, moment, table

        page = await app.flows.list(state=state, limit=limit, cursor=cursor)
        if as_json:
            document(page)
        elif not page.flows:
            say_none(app, f"{' or '.join(state)} flows" if state else "flows")
        else:
            rows = [(one.id, one.name, one.state, one.jobs, moment(one.created_at)) for one in page.flows]
            table("Flows", ("Flow", "Name", "State", "Jobs", "Made"), rows, keep=("Flow", "State"))
            if page.cursor is not None:
                print(f"There are more: --cursor {page.cursor}")

    with_app(url, look)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="FLOW", show_default=False)],
    url: options.Url = None,
    as_json: options.AsJson = False,
    watch: options.Watch = False,
) -> None:
    """Show how far a flow is, and what became of its jobs. Watching ends with the flow."""

    async def look(app: Holdfast) -> None:
        async def show_once() -> bool:
            from msgspec import to_builtins

            from ..core.job import TERMINAL
            from .printing import document, json

            status = await app.flows.handle(id).status()
            members = [_member(record) for record in await parts_of(app).flows.members(id)]
            if as_json:
                said = to_builtins(status) | {"members": members}
                (json if watch else document)(said)
            else:
                _print(status, members)
            return status.state in TERMINAL

        await watching(show_once, watch=watch, as_json=as_json)

    with_app(url, look, watch=watch)


def _member(record: Record) -> dict[str, Any]:
    from ..core import internal as extra

    said = extra.read(record.extra)
    number = int(record.id.rpartition(".")[2])
    after = [each for each, _ in said.after] if said.allow_unfinished is None else list(range(number))
    return {"number": number, "task": record.task, "state": record.state, "after": after, "error": record.error}


def _print(status: FlowStatus, members: list[dict[str, Any]]) -> None:
    from .printing import say, table

    ended = sum(status.counts.get(state, 0) for state in ("succeeded", "dead", "cancelled"))
    say(f"Flow {status.id} ({status.name}): {status.state}, {ended} of {status.jobs} jobs have ended.")
    if status.cancelling:
        print("It is being cancelled: what waits is cancelled, and what runs is asked to stop.")
    if status.error:
        say(status.error)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status.counts.items()))
    rows = [
        (one["number"], one["task"], one["state"], _numbers(one["after"]), _line(one["error"]))
        for one in members[:LINES]
    ]
    table(f"Its jobs: {counts}", ("Job", "Task", "State", "After", "Error"), rows, keep=("Job", "State"))
    if len(members) > LINES:
        print(f"And {len(members) - LINES} more; --json has them all.")
    print(f"One of them: holdfast show {status.id}.0")


def _numbers(after: list[int]) -> str:
    """Up to three, or from the first to the last of many."""
    return ", ".join(map(str, after)) if len(after) <= 3 else f"{after[0]} … {after[-1]}"


def _line(error: str | None) -> str:
    line = (error or "").partition("\n")[0]
    return line if len(line) <= ERROR_WIDTH else line[: ERROR_WIDTH - 1] + "…"
