"""`holdfast top`: start the live view of a store in the terminal."""

from __future__ import annotations

import asyncio
import sys

from ..core.errors import ConfigError, requires
from . import options
from .connect import make_app, refuse_missing


def top(url: options.Url = None) -> None:
    """Watch the store live; cancel, retry and pause from the keyboard."""
    with requires("holdfast top", "tui", "textual"):
        from .live import Top
    holdfast = make_app(url)
    asyncio.run(refuse_missing(holdfast))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("`holdfast top` needs a terminal; `holdfast status --json` prints the counts once")
    Top(holdfast).run()
