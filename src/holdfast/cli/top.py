"""`holdfast top`: queues, workers, running jobs and failures, live in the terminal."""

from __future__ import annotations

from ..errors import MissingExtra
from . import options
from .connect import make_app


def top(url: options.Url = None) -> None:
    """Watch the store live; cancel, retry and pause from the keyboard."""
    try:
        from .live import Top
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("textual"):
            raise MissingExtra("holdfast top", "tui") from None
        raise
    Top(make_app(url)).run()
