"""`holdfast webhook …`: add, list and remove webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .connect import make_app, print_none, run, with_app

if TYPE_CHECKING:
    from ..webhooks.service import Webhook

app = typer.Typer(help="Webhooks: signed HTTP notifications when jobs end.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command()
def add(
    name: Name,
    address: Annotated[str, typer.Argument(metavar="URL", show_default=False)],
    *,
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="job_succeeded, job_failed, job_dead, job_cancelled or job_expired; repeatable. (default: all)"
        ),
    ] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Only jobs of this queue; repeatable.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only jobs of this task; repeatable.")] = None,
    url: options.Url = None,
) -> None:
    """Add a webhook: a signed POST to a URL when a job ends. Needs the same HOLDFAST_SECRET as the workers."""
    key = with_app(
        url,
        lambda app: app.webhooks.add(name, address, events=event, queues=queue or (), tasks=task or ()),
        create=True,
    )
    print(f"Webhook {name} added. The receiver verifies signatures with this key:")
    print(key)


@app.command("list")
def list_all(url: options.Url = None, as_json: options.AsJson = False) -> None:
    """List every webhook."""
    app = make_app(url)
    hooks = run(app, lambda app: app.webhooks.list())
    from ..core.url import redact
    from .printing import document, table

    rows = [_row(hook, redact(hook.url)) for hook in hooks]
    if as_json:
        document(rows)
    elif rows:
        columns = ("Name", "URL", "Events", "Queues", "Tasks")
        cells = [
            (row["name"], row["url"], *(", ".join(row[part]) or "all" for part in ("events", "queues", "tasks")))
            for row in rows
        ]
        table("Webhooks", columns, cells, keep=("Name", "URL"))
    else:
        print_none(app, "webhooks")


def _row(hook: Webhook, shown: str) -> dict[str, Any]:
    return {"name": hook.name, "url": shown, "events": hook.events, "queues": hook.queues, "tasks": hook.tasks}


@app.command()
def remove(name: Name, url: options.Url = None) -> None:
    """Remove a webhook; exit code 1 if it does not exist."""
    if with_app(url, lambda app: app.webhooks.remove(name)):
        print(f"Webhook {name} removed.")
    else:
        typer.echo(f"holdfast: there is no webhook {name!r}; `holdfast webhook list` lists all", err=True)
        raise typer.Exit(1)
