"""`holdfast signal`: send a signal to the jobs that wait for it."""

from __future__ import annotations

import shlex
from typing import Annotated

import msgspec
import typer

from ..core.errors import InvalidJob
from . import options
from .connect import with_app

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Value = Annotated[
    str, typer.Argument(metavar="[JSON]", help="Value passed to the jobs. (default: null)", show_default=False)
]


def signal(name: Name, value: Value = "null", url: options.Url = None) -> None:
    """Send a signal: wake every job that waits for it now, and those that wait for it later."""
    try:
        given = msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        if value[:1].isalpha():
            quoted = shlex.quote(msgspec.json.encode(value).decode())
            raise InvalidJob(f"signal {name!r} was not sent: in JSON, a string needs quotes: {quoted}") from None
        example = 'true or \'{"by": "ann"}\' or \'"text"\''
        raise InvalidJob(f"signal {name!r} was not sent: its value must be JSON, such as {example}: {error}") from None
    woken = with_app(url, lambda app: app.signal(name, given), create=True)
    print(f"Signal {name} sent; it woke {woken} job{'' if woken == 1 else 's'}.")
