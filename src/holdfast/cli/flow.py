"""`holdfast flow …`: jobs that wait for each other. Whole flows are cancelled and retried like jobs, by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .connect import watching, with_app

if TYPE_CHECKING:
    from ..app import Holdfast

app = typer.Typer(
    help="Jobs that wait for each other. `holdfast cancel` and `holdfast retry` take a flow's id too.",
    no_args_is_help=True,
)


@app.command("list")
def list_all(
    *,
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", help="blocked, succeeded, dead, cancelled.")
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
            print("There are no flows in this store.")
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
    """Show how far a flow is, and what became of its jobs."""

    async def look(app: Holdfast) -> None:
        async def once() -> None:
            from .printing import document, json, table

            status = await app.flow(id).status()
            if as_json:
                (json if watch else document)(status)
                return
            ended = sum(status.counts.get(state, 0) for state in ("succeeded", "dead", "cancelled"))
            print(f"Flow {status.id} ({status.name}): {status.state}, {ended} of {status.jobs} jobs have ended.")
            if status.error:
                print(status.error)
            table("Its jobs", ("State", "Jobs"), sorted(status.counts.items()))
            print(f"One by one: holdfast show {status.id}.0 and so on, up to {status.id}.{status.jobs - 1}.")

        await watching(once, watch=watch, as_json=as_json)

    with_app(url, look)
