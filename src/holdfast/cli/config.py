"""`holdfast config …`: settings stored in the store, which apply to all of its clients and workers."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .connect import with_app

app = typer.Typer(help="Settings stored in the store.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command("set")
def set_one(
    name: Name, value: Annotated[str, typer.Argument(metavar="VALUE", show_default=False)], url: options.Url = None
) -> None:
    """Set max_retries (all attempts, with the first), backoff_base, … for all clients and workers of this store."""
    key, kept = with_app(url, lambda app: app.config.set(name, value), create=True)
    print(f"Config updated: {key} = {_shown(kept)}")


@app.command()
def get(name: Name, url: options.Url = None, as_json: options.AsJson = False) -> None:
    """Print one stored setting; exit code 1 if it is not set."""
    value = with_app(url, lambda app: app.config.get(name))
    if as_json:
        from .printing import json

        json(value)
    elif value is not None:
        print(_shown(value))
    if value is None:
        raise _not_set(name)


def _not_set(name: str) -> typer.Exit:
    typer.echo(f"holdfast: setting {name} is not set in this store; `holdfast config list` lists all", err=True)
    return typer.Exit(1)


@app.command()
def unset(name: Name, url: options.Url = None) -> None:
    """Remove a stored setting; exit code 1 if it is not set."""
    if not with_app(url, lambda app: app.config.unset(name)):
        raise _not_set(name)
    print(f"Config removed: {name}")


@app.command("list")
def list_all(url: options.Url = None, as_json: options.AsJson = False) -> None:
    """List every stored setting."""
    stored = with_app(url, lambda app: app.config.list())
    from .printing import document, table

    if as_json:
        document(stored)
    elif stored:
        table(
            "System Configuration", ("Key", "Value"), [(k, _shown(v)) for k, v in stored.items()], keep=("Key", "Value")
        )
    else:
        print("No settings are stored in this store; defaults and environment variables apply.")


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
