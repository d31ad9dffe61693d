"""`holdfast audit`: who did what, when, and with which outcome; and the undo of an action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .connect import make_app, print_none, run, with_app

if TYPE_CHECKING:
    from ..client.audit import AuditEntry


app = typer.Typer(help="Operator actions: list them, and undo one.", invoke_without_command=True)


@app.callback()
def audit(
    context: typer.Context,
    *,
    action: Annotated[str | None, typer.Option(help="Only this action, such as cancel or bulk.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only actors whose name contains this.")] = None,
    about: Annotated[str | None, typer.Option(help="Only actions on this, such as the id of a job.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of actions.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Cursor printed by the previous page.")] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """List operator actions, newest first: actor, action, target, outcome. `audit undo` undoes one."""
    if context.invoked_subcommand is not None:
        return
    from .printing import document, moment, table

    app = make_app(url)
    page = run(app, lambda app: app.audit.list(action=action, actor=actor, about=about, limit=limit, cursor=cursor))
    if as_json:
        document(page)
        return
    if not page.entries:
        print_none(app, "matching operator actions" if action or actor or about else "operator actions")
    else:
        rows = [
            (one.id, moment(one.at), one.surface, one.actor, one.action, _target(one), _outcome(one))
            for one in page.entries
        ]
        columns = ("ID", "Time", "Surface", "Actor", "Action", "Target", "Outcome")
        table("Operator actions", columns, rows, keep=("ID", "Time", "Surface", "Actor", "Action"))
    if page.cursor is not None:
        print(f"More actions follow: --cursor {page.cursor}")


@app.command()
def undo(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the action's entry.", show_default=False)],
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Undo a pause, or a cancel or retry of jobs that have not started since."""
    done = with_app(url, lambda app: app.audit.undo(id))
    if as_json:
        from .printing import document

        document(done)
        return
    print(f"Undone: {done.changed:,}. Not undone: {done.skipped:,}{':' if done.why else '.'}")
    for reason in done.why:
        print(f"  {reason}")


def _target(entry: AuditEntry) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in entry.target.items())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value, enc_hook=str).decode()


def _outcome(entry: AuditEntry) -> str:
    count = "" if entry.count is None else f", {entry.count} job{'' if entry.count == 1 else 's'}"
    undo = "" if entry.undo is None or not entry.undo.count else ", can be undone"
    return f"{entry.status}{count}{undo}" + (f": {entry.error}" if entry.error else "")
