"""`holdfast token …`: who may use the HTTP API, and for what."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .connect import make_app, run, say_none, with_app

app = typer.Typer(help="Tokens for the HTTP API.", no_args_is_help=True)


@app.command()
def create(
    *,
    role: Annotated[list[str], typer.Option("--role", "-r", help="read, submit, work or operate; may be given again.")],
    label: Annotated[str, typer.Option(help="What it is for, to tell it from others.")] = "",
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a token and print it, this once: the store keeps only a digest.

    read: look at jobs, queues, workers. submit: enqueue. work: claim and settle. operate: cancel, retry, delete, pause,
    settings.
    """
    from ..http import tokens

    token = with_app(url, lambda app: tokens.create(app, role, label), create=True)
    if as_json:
        from .printing import json

        json({"token": token, "roles": tokens.checked_roles(role), "label": label})
    else:
        print(token)


@app.command("list")
def list_tokens(url: options.Url = None, as_json: options.AsJson = False) -> None:
    """List the tokens: id, roles, label. Their secrets are nowhere."""
    from ..http import tokens
    from .printing import document, moment, table

    app = make_app(url)
    found = run(app, tokens.tokens)
    if as_json:
        document(found)
    elif not found:
        say_none(app, "tokens")
    else:
        rows = [(one.id, ", ".join(one.roles), one.label, moment(one.created_at)) for one in found]
        table("Tokens", ("ID", "Roles", "Label", "Made"), rows, keep=("ID", "Roles"))


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `token list` shows it.", show_default=False)],
    url: options.Url = None,
) -> None:
    """Revoke a token; servers refuse it within seconds."""
    from ..http import tokens

    with_app(url, lambda app: tokens.revoke(app, id))
    print(f"Token {id} revoked.")
