"""From a command to an open app, and back to the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from ..core.errors import JobNotFound, ScheduleNotFound, StoreUnavailable
from ..core.url import redact

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..parts import Parts

T = TypeVar("T")
root: dict[str, str | None] = {"url": None, "app": None}
"""What was given before the command's own name: `holdfast --url … -A … status`."""


def make_app(url: str | None, application: str | None = None) -> Holdfast:
    """The app that the options name; by itself, one on ./holdfast.db."""
    url, application = url or root["url"], application or root["app"]
    if application is not None:
        from ..loading import load_app

        if url is not None:
            os.environ["HOLDFAST_URL"] = url
        return load_app(application)
    from ..app import Holdfast

    return Holdfast(url)


def parts_of(app: Holdfast) -> Parts:
    """What an app is made of; the app is imported by now."""
    from ..app import parts_of

    return parts_of(app)


def where(app: Holdfast) -> str:
    """The store of an app, to be shown: its URL, and for a relative one the file that it means here."""
    parts = parts_of(app)
    shown, path = redact(parts.url), getattr(parts.runtime.store, "path", None)
    return shown if path is None or path in unquote(shown) else f"{shown} ({path})"


async def _exists(app: Holdfast) -> bool:
    from ..store.protocol import Existing

    store = parts_of(app).runtime.store
    return not isinstance(store, Existing) or await store.exists()


async def refuse_missing(app: Holdfast) -> None:
    """Before a command that goes on looking at a store: raise where there is none, rather than make one."""
    if not await _exists(app):
        raise StoreUnavailable(
            f"there is no store at {where(app)}, and none was made: the first enqueue or worker makes one, or"
            " `holdfast migrate`. --url or HOLDFAST_URL names another"
        )


async def _instead(app: Holdfast) -> Holdfast:
    """The app itself; where its store does not exist, an empty one in memory, so that looking makes nothing."""
    if await _exists(app):
        return app
    from ..app import Holdfast

    print(f"holdfast: note: there is no store at {where(app)} yet, and none was made", file=sys.stderr)
    empty = Holdfast("memory://")
    parts_of(empty).url = parts_of(app).url
    return empty


def run(app: Holdfast, work: Callable[[Holdfast], Awaitable[T]], *, create: bool = False, watch: bool = False) -> T:
    """Do something with an open app, then close it.

    Only with `create` is a store made where there is none. With `watch` there must be one: it would not be seen later.
    """

    async def opened() -> T:
        if watch:
            await refuse_missing(app)
        async with app if create else await _instead(app) as found:
            try:
                return await work(found)
            except (JobNotFound, ScheduleNotFound) as error:
                error.add_note(where(app))  # mostly it is in another one
                raise

    return asyncio.run(opened())


def with_app(
    url: str | None,
    work: Callable[[Holdfast], Awaitable[T]],
    application: str | None = None,
    *,
    create: bool = False,
    watch: bool = False,
) -> T:
    """Open the app that the options name, and do something with it; see `run`."""
    return run(make_app(url, application), work, create=create, watch=watch)


def note_unknown(app: Holdfast, application: str | None, task: str | None) -> None:
    """Say where an application has no task of this name, which may be a typing error; another program may have it."""
    known = parts_of(app).registry.tasks
    if (application or root["app"]) is None or task is None or task in known or ":" in task:
        return
    import difflib

    nearest = difflib.get_close_matches(task, known, 1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    print(f"holdfast: note: this application has no task {task!r}{hint}", file=sys.stderr)


def say_none(app: Holdfast, what: str) -> None:
    """There are none, and where: mostly they are in another store."""
    print(f"There are no {what} in {where(app)}.")


async def watching(look: Callable[[], Awaitable[bool | None]], *, watch: bool, as_json: bool = False) -> None:
    """Look once; or, to watch, every second on a fresh screen (as JSON, or piped, one after the other).

    A look that answers True has seen the end, and is the last.
    """
    while True:
        if watch and not as_json and sys.stdout.isatty():
            sys.stdout.write("\033[H\033[2J\033[3J")
        over = await look()
        sys.stdout.flush()
        if over or not watch:
            return
        await asyncio.sleep(1.0)
