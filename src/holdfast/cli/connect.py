"""From a command to an open app, and back to the terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ..errors import JobNotFound, ScheduleNotFound
from ..settings import redact

if TYPE_CHECKING:
    from ..app import Holdfast

T = TypeVar("T")
root: dict[str, str | None] = {"url": None, "app": None}
"""What was given before the command's own name: `holdfast --url … -A … status`."""


def make_app(url: str | None, application: str | None = None) -> Holdfast:
    """The app that the options name; by itself, one on ./holdfast.db."""
    url, application = url or root["url"], application or root["app"]
    if application is not None:
        from ..load import load_app

        if url is not None:
            os.environ["HOLDFAST_URL"] = url
        return load_app(application)
    from ..app import Holdfast

    return Holdfast(url)


def run(app: Holdfast, work: Callable[[Holdfast], Awaitable[T]]) -> T:
    """Do something with an open app, then close it."""

    async def opened() -> T:
        async with app:
            try:
                return await work(app)
            except (JobNotFound, ScheduleNotFound) as error:
                error.add_note(redact(app.url))  # mostly it is in another one
                raise

    return asyncio.run(opened())


def with_app(url: str | None, work: Callable[[Holdfast], Awaitable[T]], application: str | None = None) -> T:
    """Open the app that the options name, and do something with it."""
    return run(make_app(url, application), work)


def note_unknown(app: Holdfast, application: str | None, task: str | None) -> None:
    """Say where an application has no task of this name, which may be a typing error; another program may have it."""
    known = app.registry.tasks
    if (application or root["app"]) is None or task is None or task in known or ":" in task:
        return
    import difflib
    import sys

    nearest = difflib.get_close_matches(task, known, 1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    print(f"holdfast: note: this application has no task {task!r}{hint}", file=sys.stderr)


def say_none(app: Holdfast, what: str) -> None:
    """There are none, and where: mostly they are in another store."""
    print(f"There are no {what} in {redact(app.url)}.")


async def watching(look: Callable[[], Awaitable[bool | None]], *, watch: bool, as_json: bool = False) -> None:
    """Look once; or, to watch, every second on a fresh screen (as JSON, or piped, one after the other).

    A look that answers True has seen the end, and is the last.
    """
    import sys

    while True:
        if watch and not as_json and sys.stdout.isatty():
            sys.stdout.write("\033[H\033[2J\033[3J")
        over = await look()
        sys.stdout.flush()
        if over or not watch:
            return
        await asyncio.sleep(1.0)
