"""`holdfast stream`: print the chunks that a job emits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .connect import with_app

if TYPE_CHECKING:
    from ..app import Holdfast


def stream(
    id: options.JobId,
    position: Annotated[int, typer.Option(min=0, help="Continue after the chunk with this position.")] = 0,
    follow: Annotated[
        bool, typer.Option(help="Follow until the job has ended; otherwise print only stored chunks.")
    ] = True,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Print what a job emits, a line for each chunk: text as it is, other values as JSON."""

    async def show(app: Holdfast) -> None:
        from .printing import echo, json

        async for chunk in app.handle(id).stream(position, follow=follow):
            if chunk.first and not as_json and chunk.attempt not in (None, 1):
                print(f"holdfast: note: attempt {chunk.attempt} begins here", file=sys.stderr)
            if as_json:
                json(chunk)
            elif isinstance(chunk.value, str):
                echo(chunk.value)
            else:
                json(chunk.value)
            sys.stdout.flush()

    with_app(url, show)
