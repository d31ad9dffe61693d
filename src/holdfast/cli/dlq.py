"""`holdfast dlq …`: the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidJob
from . import options
from .connect import make_app, run, with_app
from .jobs import retried, show_page
from .operate import purge_jobs

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
    app = make_app(url)
    page = run(app, lambda app: app.jobs(state="dead", queue=queue, task=task, tag=tag, limit=limit))
    show_page(app, page, "dead", as_json=as_json)


@app.command()
def retry(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    queue: options.Queue = None,
    dry_run: options.DryRun = False,
    url: options.Url = None,
) -> None:
    """Run a dead job again (or all of them), from attempt 0."""
    if (id is None) != every:
        raise InvalidJob("name one job, or --all")
    if dry_run and not every:
        raise InvalidJob("--dry-run goes with --all")

    async def again(app: Holdfast) -> str:
        if id is not None:
            return await retried(app, id, "dead")
        matched = await app.retry_dead(queue=queue, dry_run=True)
        if dry_run:
            return f"{matched} dead jobs match; none was retried."
        said = f"{await app.retry_dead(queue=queue)} jobs moved from DLQ to 'queued'."
        left = sum(one.counts.get("dead", 0) for one in (await app.stats()).queues if queue in (None, one.name))
        return f"{said}\n{left} are in the DLQ still; `holdfast dlq retry ID` says why." if left else said

    print(with_app(url, again))


@app.command()
def purge(
    queue: options.Queue = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    url: options.Url = None,
) -> None:
    """Delete the dead jobs for good."""
    purge_jobs(url, {"state": "dead", "queue": queue}, "dead jobs", yes=yes, dry_run=dry_run)
