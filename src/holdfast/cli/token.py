"""`holdfast token …`: who may use the HTTP API, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ConfigError
from . import options
from .connect import make_app, parts_of, run, say_none, with_app

if TYPE_CHECKING:
    from ..http.tokens import TokenInfo

app = typer.Typer(help="Tokens for the HTTP API.", no_args_is_help=True)


@app.command()
def create(
    *,
    role: Annotated[list[str], typer.Option("--role", "-r", help="read, submit, work or operate; may be given again.")],
    label: Annotated[str, typer.Option(help="What it is for, to tell it from others.")] = "",
    expires: Annotated[
        str | None, typer.Option(help="For how long it holds, such as 90d. (default: until revoked)")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="A queue that it is for, such as mail; may be given again."),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="A task that it is for, such as 'report_*'; may be given again.")
    ] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a token and print it, this once: the store keeps only a digest.

    read: look at jobs, queues, workers. submit: enqueue. work: claim and settle. operate: cancel, retry, delete, pause,
    settings. With --queue or --task it is for jobs of these alone, and routes that are about more refuse it.
    """
    from ..core.settings import duration
    from ..http import tokens

    try:
        lasts = None if expires is None else duration(expires)
    except ValueError:
        raise ConfigError(f"--expires takes a time such as 12h or 90d, not {expires!r}") from None
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
    """List the tokens: id, roles, what they are for, when they end. Their secrets are nowhere."""
    from ..client.search import Scope
    from ..http import tokens
    from .printing import document, moment, table

    app = make_app(url)
    found = run(app, lambda app: tokens.tokens(parts_of(app).records))
    if as_json:
        document(found)
    elif not found:
        say_none(app, "tokens")
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
        table("Tokens", ("ID", "Roles", "Only for", "Label", "Made", "Expires"), rows, keep=("ID", "Roles"))


def _end(token: TokenInfo) -> str:
    from .printing import moment

    if token.expires_at is None:
        return "never"
    return f"expired {moment(token.expires_at)}" if token.expired else moment(token.expires_at)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `token list` shows it.", show_default=False)],
    url: options.Url = None,
) -> None:
    """Revoke a token; servers refuse it within seconds."""
    from ..http import tokens

    with_app(url, lambda app: tokens.revoke(parts_of(app).records, id))
    print(f"Token {id} revoked.")
