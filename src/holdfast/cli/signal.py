"""`holdfast signal`: what jobs wait for."""

from __future__ import annotations

import shlex
from typing import Annotated

import msgspec
import typer

from ..core.errors import InvalidJob
from . import options
from .connect import with_app

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Value = Annotated[str, typer.Argument(metavar="[JSON]", help="What the jobs get; null without it.", show_default=False)]


def signal(name: Name, value: Value = "null", url: options.Url = None) -> None:
    """Wake every job that waits for this signal, now or later."""
    try:
        given = msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        if value[:1].isalpha():
            quoted = shlex.quote(msgspec.json.encode(value).decode())
            raise InvalidJob(f"the value is JSON, in which a text needs quotes: {quoted}") from None
        raise InvalidJob(f'the value is JSON, such as true or \'{{"by": "ann"}}\' or \'"text"\': {error}') from None
    woken = with_app(url, lambda app: app.signal(name, given), create=True)
    print(f"Signal {name} sent; it woke {woken} job{'' if woken == 1 else 's'}.")
