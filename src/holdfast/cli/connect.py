"""Open the app that a command's options name, run an operation on it, close it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from ..core.errors import ConfigError, JobNotFound, ScheduleNotFound, StoreUnavailable, WorkerNotFound
from ..core.url import redact
from . import garbage

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..parts import Parts

T = TypeVar("T")
SHOW_CURSOR = b"\x1b[?25h\n"
"""Progress bars hide it."""
root: dict[str, str | None] = {"url": None, "app": None}
"""The values of `SHARED` (commands.py): -A at any position, --url before the name of the command."""


def make_app(url: str | None, imports: Sequence[str] = (), discover: Sequence[str] = ()) -> Holdfast:
    """The app that the options name; without options, one on HOLDFAST_URL or ./holdfast.db."""
    url, application = url or root["url"], root["app"]
    if application is not None:
        from ..loading import import_tasks, load_app, task_modules

        if url is not None:
            os.environ["HOLDFAST_URL"] = url
        found = load_app(application, imports)
        if discover:
            import_tasks(found, [name for package in discover for name in task_modules(package)])
        parts_of(found).settle()
        return found
    if imports or discover:
        raise ConfigError("-I and --discover import tasks of an application: name it with -A module:app")
    from ..app import Holdfast

    app = Holdfast(url)
    parts_of(app).settle()
    return app


def parts_of(app: Holdfast) -> Parts:
    """The internal parts of an app; imports `holdfast.app` only when called."""
    from ..app import parts_of

    return parts_of(app)


def where(app: Holdfast) -> str:
    """The store of an app as shown to users: its redacted URL, with the absolute path if the URL is relative."""
    parts = parts_of(app)
    shown, path = redact(parts.url), getattr(parts.runtime.store, "path", None)
    return shown if path is None or path in unquote(shown) else f"{shown} ({path})"


async def _exists(app: Holdfast) -> bool:
    from ..store.protocol import Existing

    store = parts_of(app).runtime.store
    return not isinstance(store, Existing) or await store.exists()


async def refuse_missing(app: Holdfast) -> None:
    """Raise StoreUnavailable if the store does not exist; for commands that watch it and must not create it."""
    if not await _exists(app):
        raise StoreUnavailable(
            f"there is no store at {where(app)}, and none was created. The first enqueue, the first worker or"
            " `holdfast migrate` creates it; to use another store, set --url or HOLDFAST_URL"
        )


async def _app_or_empty(app: Holdfast) -> Holdfast:
    """The app; if its store does not exist, an app on an empty memory store, so that reading creates nothing."""
    if await _exists(app):
        return app
    from ..app import Holdfast

    print(f"holdfast: note: there is no store at {where(app)} yet; the first enqueue creates it", file=sys.stderr)
    empty = Holdfast("memory://")
    parts_of(empty).url = parts_of(app).url
    return empty


def run(app: Holdfast, work: Callable[[Holdfast], Awaitable[T]], *, create: bool = False, watch: bool = False) -> T:
    """Open an app, run `work` with it, close it.

    `create`: create a missing store. `watch`: raise StoreUnavailable if the store is missing.
    """
    import asyncio  # late: `--help` needs none

    from ..observe.actors import acting, user

    async def opened() -> T:
        _exit_at_second_interrupt()
        if watch:
            await refuse_missing(app)
        async with app if create else await _app_or_empty(app) as found:
            try:
                with acting(user()):
                    return await work(found)
            except (JobNotFound, ScheduleNotFound, WorkerNotFound) as error:
                error.add_note(f"the store is {where(app)}")  # the usual cause is a wrong store
                raise

    garbage.resume()
    before = signal.getsignal(signal.SIGINT)
    try:
        return asyncio.run(opened())
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _exit_at_second_interrupt() -> None:
    """The first Ctrl-C cancels the command, as asyncio does; the second exits at once, whatever still closes."""
    cancel = signal.getsignal(signal.SIGINT)
    if not callable(cancel) or threading.current_thread() is not threading.main_thread():
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _exit_now)
        cancel(number, frame)

    signal.signal(signal.SIGINT, interrupted)


def _exit_now(_: int, __: FrameType | None) -> None:
    if sys.stderr.isatty():
        os.write(2, SHOW_CURSOR)
    os._exit(130)


def with_app(
    url: str | None, work: Callable[[Holdfast], Awaitable[T]], *, create: bool = False, watch: bool = False
) -> T:
    """Open the app that the options name and run `work` with it; see `run`."""
    return run(make_app(url), work, create=create, watch=watch)


def note_unknown(app: Holdfast, task: str | None) -> None:
    """Print a note if the application has no task of this name: a misspelled name, or a task of another program."""
    known = parts_of(app).registry.tasks
    if root["app"] is None or task is None or task in known or ":" in task:
        return
    import difflib

    nearest = difflib.get_close_matches(task, known, 1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "its workers cannot run it"
    print(f"holdfast: note: application {root['app']} has no task {task!r}; {hint}", file=sys.stderr)


def print_none(app: Holdfast, what: str) -> None:
    """Print that the store has no such objects, with its URL: the usual cause is a wrong store."""
    print(f"There are no {what} in {where(app)}.")


def watching(
    url: str | None, refresh: Callable[[Holdfast], Awaitable[bool | None]], *, watch: bool, as_json: bool = False
) -> None:
    """Call `refresh` with the app; with `watch`, every second on a cleared screen, or as lines of JSON.

    Stops when `refresh` returns True. Text that is not for a terminal is printed once, unless `refresh` has an end:
    then it returns False until that.
    """
    import asyncio

    async def repeat(app: Holdfast) -> None:
        terminal = sys.stdout.isatty()
        while True:
            if watch and not as_json and terminal:
                sys.stdout.write("\033[H\033[2J\033[3J")
            ended = await refresh(app)
            sys.stdout.flush()
            if ended or not watch:
                return
            if ended is None and not as_json and not terminal:
                print(
                    "holdfast: note: standard output is not a terminal, so this was printed once;"
                    " --watch --json prints a line every second",
                    file=sys.stderr,
                )
                return
            await asyncio.sleep(1.0)

    with_app(url, repeat, watch=watch)
