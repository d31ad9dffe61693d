"""Who may call an app from where: what is refused at once, with a clear error, because it would block or hang."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

from ..core.errors import ConfigError, HoldfastError

PATCHED = {
    "gevent.monkey": ("is_module_patched", "threading"),
    "eventlet.patcher": ("is_monkey_patched", "thread"),
}
"""By module, the function that says whether it has replaced threads by greenlets, and what that is asked about."""

PATCHING_SERVERS = {"gunicorn.workers.ggevent": "gevent", "gunicorn.workers.geventlet": "eventlet"}
"""Modules that gunicorn imports only to serve with greenlets, and what will replace threads in its workers."""


class AppThread(threading.Thread):
    """A daemon thread that the app waits for. It must never wait for the app, not even in a finalizer.

    With `runs_loop` it is the thread of the app's own loop: what runs on that loop may await the app.
    """

    def __init__(self, target: Callable[[], object], name: str, *, runs_loop: bool = False) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.runs_loop = runs_loop


_marked = threading.local()


def mark_store_thread() -> None:
    """Make this thread one of the same kind: for the threads of a pool."""
    _marked.yes = True


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs here."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        if _trio_runs():
            raise HoldfastError(
                "nothing was done: Holdfast awaits on asyncio, and this is trio's loop; call the blocking surface in a"
                " thread: `await trio.to_thread.run_sync(task.sync.enqueue, …)`"
            ) from None
        raise HoldfastError(
            "nothing was done: no asyncio event loop runs here; use `app.sync` in blocking code, or asyncio.run()"
        ) from None


def refuse_blocking() -> None:
    """Raise where a blocking call would stop the very loop, or thread, that has to answer it."""
    refuse_caller()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise HoldfastError(
            "app.sync blocks, and this thread runs an event loop: use `await` and the async surface here"
        )
    if _trio_runs():
        raise HoldfastError(
            "app.sync blocks, and this thread runs trio's loop: call it in a thread, as in"
            " `await trio.to_thread.run_sync(task.sync.enqueue, …)`"
        )


def refuse_caller() -> None:
    """Raise where a call could never be answered: nothing was done."""
    if sys.is_finalizing():
        raise HoldfastError(
            "nothing was done: the interpreter is ending, and Holdfast's threads have ended; make this call before the"
            " end of the program, or in a function that `atexit` calls"
        )
    thread = threading.current_thread()
    ours = isinstance(thread, AppThread)
    awaits = ours and thread.runs_loop and asyncio._get_running_loop() is not None  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    if (ours or hasattr(_marked, "yes")) and not awaits:
        raise HoldfastError(
            "nothing was done: this is a thread of the app itself, where the garbage collector ran a finalizer"
            " (`__del__`); make this call somewhere else than in a finalizer"
        )
    for name, (function, subject) in PATCHED.items():
        patcher = sys.modules.get(name)
        if patcher is not None and getattr(patcher, function)(subject):
            raise _needs_threads(f"{name.partition('.')[0]} has replaced them")


def refuse_program() -> None:
    """Raise where no call of this program could be answered, as an app is made: its server does not start then.

    With `--preload` gunicorn makes the app before its workers, forked later, replace threads: without this look at the
    server, each request would be refused.
    """
    refuse_caller()
    for module, patcher in PATCHING_SERVERS.items():
        if module in sys.modules:
            raise _needs_threads(f"{patcher} replaces them in gunicorn's workers")


def _needs_threads(why: str) -> ConfigError:
    return ConfigError(
        f"Holdfast needs real threads, and {why} (monkey-patching): serve with threads instead, such as"
        " `gunicorn --worker-class gthread`"
    )


def _trio_runs() -> bool:
    lowlevel = sys.modules.get("trio.lowlevel")
    return lowlevel is not None and lowlevel.in_trio_run()
