"""`holdfast dlq …`: list, retry and purge dead jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from ..core.errors import InvalidJob
from ..core.validation import checked_rate
from . import completion, options
from .bulk import in_bulk, reasons_text
from .connect import make_app, run, with_app
from .jobs import retried, show_page
from .operate import purge_jobs

app = typer.Typer(help="Dead-letter queue: jobs that have used all their attempts.", no_args_is_help=True)


@app.command("list")
def list_dead(
    *,
    queue: options.Queue = None,
    task: options.TaskName = None,
    tag: options.Tag = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of jobs.")] = 100,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List dead jobs, newest first."""
    app = make_app(url)
    page = run(app, lambda app: app.jobs(state="dead", queue=queue, task=task, tag=tag, limit=limit))
    show_page(app, page, "dead", as_json=as_json)


@app.command()
def retry(
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", show_default=False, autocompletion=completion.job_ids)
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Retry all dead jobs.")] = False,
    queue: options.Queue = None,
    rate: Annotated[
        str | None, typer.Option(help="With --all: the jobs become due at this rate, such as 100/s or 30/m.")
    ] = None,
    dry_run: options.DryRun = False,
    url: options.Url = None,
) -> None:
    """Retry one dead job, or all of them, from attempt 0.

    With --rate all jobs are scheduled at once, each at its time: the command does not have to stay.
    """
    if (id is None) != every:
        raise InvalidJob("nothing was retried: `holdfast dlq retry` takes either one job ID or --all")
    if dry_run and not every:
        raise InvalidJob("nothing was retried: --dry-run needs --all")

    if rate is not None:
        if not every:
            raise InvalidJob("nothing was retried: --rate needs --all")
        checked_rate(rate)
    if id is not None:
        print(with_app(url, lambda app: retried(app, id, "dead")))
        return
    from ..client.search import Filter

    seen = in_bulk(
        url,
        "counted" if dry_run else "retried",
        Filter(state="dead", queue=queue),
        lambda app, progress: app.bulk.retry_dead(queue=queue, rate=rate, dry_run=dry_run, progress=progress),
        "holdfast dlq retry --all",
    )
    if dry_run:
        print(f"{seen.matched} dead jobs match; none was retried.")
        return
    print(f"{seen.changed} jobs moved from DLQ to {'queued' if rate is None else 'scheduled'!r}.")
    if seen.skipped:
        print(f"{seen.skipped} skipped: {reasons_text(seen)}; `holdfast dlq retry ID` prints the reason for one job.")


@app.command()
def purge(
    queue: options.Queue = None, yes: options.Yes = False, dry_run: options.DryRun = False, url: options.Url = None
) -> None:
    """Delete dead jobs permanently."""
    purge_jobs(url, {"state": "dead", "queue": queue}, "dead jobs", yes=yes, dry_run=dry_run)
