"""`holdfast token …`: create, list and revoke tokens of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ConfigError
from . import options
from .connect import make_app, parts_of, print_none, run, with_app

if TYPE_CHECKING:
    from ..http.tokens import TokenInfo

app = typer.Typer(help="Tokens for the HTTP API.", no_args_is_help=True)


@app.command()
def create(
    *,
    role: Annotated[list[str], typer.Option("--role", "-r", help="read, submit, work or operate; repeatable.")],
    label: Annotated[str, typer.Option(help="A description, shown by `token list`.")] = "",
    expires: Annotated[
        str | None, typer.Option(help="Valid for this long, such as 90d. (default: until revoked)")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="Restrict the token to a queue, such as mail; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Restrict the token to a task, such as 'report_*'; repeatable.")
    ] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Create a token and print it. It cannot be shown again: the store keeps only a digest.

    Roles: read: inspect jobs, queues, workers. submit: enqueue. work: claim and settle. operate: cancel, retry, delete,
    pause, settings. With --queue or --task the token covers only these jobs; routes with a wider scope refuse it.
    """
    from ..core.settings import duration
    from ..http import tokens

    try:
        lasts = None if expires is None else duration(expires)
    except ValueError:
        raise ConfigError(f"--expires takes a duration such as 12h or 90d, not {expires!r}; no token created") from None
    token = with_app(
        url,
        lambda app: tokens.create(
            parts_of(app).records, role, label, expires=lasts, queues=queue or (), tasks=task or ()
        ),
        create=True,
    )
    if as_json:
        from .printing import json

        made = {"roles": tokens.checked_roles(role), "label": label, "expires_in": lasts}
        json({"token": token, **made, "queues": queue or [], "tasks": task or []})
    else:
        print(token)


@app.command("list")
def list_tokens(url: options.Url = None, as_json: options.AsJson = False) -> None:
    """List the tokens: id, roles, scope, label and expiry. Secrets are not stored."""
    from ..client.search import Scope
    from ..http import tokens
    from .printing import document, moment, table

    app = make_app(url)
    found = run(app, lambda app: tokens.tokens(parts_of(app).records))
    if as_json:
        document(found)
    elif not found:
        print_none(app, "tokens")
    else:
        rows = [
            (
                one.id,
                ", ".join(one.roles),
                str(Scope(one.queues, one.tasks)),
                one.label,
                moment(one.created_at),
                _end(one),
            )
            for one in found
        ]
        table("Tokens", ("ID", "Roles", "Scope", "Label", "Created", "Expires"), rows, keep=("ID", "Roles"))


def _end(token: TokenInfo) -> str:
    from .printing import moment

    if token.expires_at is None:
        return "never"
    return f"expired {moment(token.expires_at)}" if token.expired else moment(token.expires_at)


@app.command()
def revoke(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of the token, as `token list` shows it.", show_default=False)
    ],
    url: options.Url = None,
) -> None:
    """Revoke a token, and those that were created with it; servers refuse them within seconds."""
    from ..http import tokens

    others = with_app(url, lambda app: tokens.revoke(parts_of(app).records, id))
    print(f"Token {id} revoked.")
    if others:
        print(f"Also revoked, because they were created with it: {', '.join(others)}.")
