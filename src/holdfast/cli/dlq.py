"""`holdfast dlq …`: the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidJob, WrongState
from . import options
from .connect import with_app
from .jobs import show_page

if TYPE_CHECKING:
    from ..app import Holdfast

app = typer.Typer(help="The dead letters: jobs that have spent all their attempts.", no_args_is_help=True)


@app.command("list")
def list_dead(
    *,
    queue: options.Queue = None,
    task: options.TaskName = None,
    tag: options.Tag = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = 100,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List the dead jobs, newest first."""
    page = with_app(url, lambda app: app.jobs(state="dead", queue=queue, task=task, tag=tag, limit=limit))
    show_page(page, "dead", as_json=as_json)


@app.command()
def retry(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    queue: options.Queue = None,
    url: options.Url = None,
) -> None:
    """Run a dead job again (or all of them), from attempt 0."""
    if (id is None) != every:
        raise InvalidJob("name one job, or --all")

    async def again(app: Holdfast) -> tuple[int, int]:
        if id is not None:
            job = await app.job(id)
            if job.state.value != "dead":
                raise WrongState(id, job.state.value, "it is not among the dead letters")
            await app.retry(id)
            return 1, 0
        count = await app.retry_dead(queue=queue)
        return count, sum(one.counts.get("dead", 0) for one in (await app.stats()).queues if queue in (None, one.name))

    count, left = with_app(url, again)
    print(f"{count} jobs moved from DLQ to 'queued'." if every else f"Job {id} moved from DLQ to 'queued'.")
    if left:
        print(f"{left} are in the DLQ still; `holdfast dlq retry ID` says why.")


@app.command()
def purge(queue: options.Queue = None, yes: options.Yes = False, url: options.Url = None) -> None:
    """Delete the dead jobs for good."""
    if not yes:
        typer.confirm(f"Delete the dead jobs{f' of queue {queue}' if queue else ''} for good?", abort=True)
    count = with_app(url, lambda app: app.purge(state="dead", queue=queue))
    print(f"{count} dead jobs deleted.")
