"""Checks of the calling thread and event loop: a call that would block or hang forever is refused at once."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable

from ..core.errors import ConfigError, HoldfastError

PATCHED = {"gevent.monkey": ("is_module_patched", "threading"), "eventlet.patcher": ("is_monkey_patched", "thread")}
"""By module, the function that returns whether threads were replaced by greenlets, and its argument."""

PATCHING_SERVERS = {"gunicorn.workers.ggevent": "gevent", "gunicorn.workers.geventlet": "eventlet"}
"""Modules that gunicorn imports only to serve with greenlets, and the library that replaces threads in its workers."""


class AppThread(threading.Thread):
    """A daemon thread that the app waits for. It must never wait for the app, not even in a finalizer.

    With `runs_loop` it is the thread of the app's own loop: what runs on that loop may await the app.
    """

    def __init__(self, target: Callable[[], object], name: str, *, runs_loop: bool = False) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.runs_loop = runs_loop


marked = threading.local()
"""`yes`: the thread is treated like an AppThread. `writing`: the lock with which it itself writes at present; its calls
would wait for it."""


def mark_store_thread() -> None:
    """Treat the current thread like an AppThread: for the threads of a pool."""
    marked.yes = True


_handler_of: Callable[[int], object] = vars(sys.modules["_signal"])["getsignal"]
"""`signal.getsignal` takes ten times as long: it makes an enum of each answer."""
_SIGNALS = tuple(
    number for number in range(1, signal.NSIG) if number not in (signal.SIGINT, signal.SIGKILL, signal.SIGSTOP)
)


def may_be_interrupted() -> bool:
    """Whether the program's own signal handlers may run on the current thread: they may call the app."""
    if threading.current_thread() is not threading.main_thread():
        return False
    on_interrupt = _handler_of(signal.SIGINT)
    own = callable(on_interrupt) and on_interrupt is not signal.default_int_handler
    return own or any(map(callable, map(_handler_of, _SIGNALS)))


def running_loop() -> asyncio.AbstractEventLoop:
    """The running asyncio event loop; HoldfastError if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        if _trio_runs():
            raise HoldfastError(
                "nothing was done: this is a trio event loop, and Holdfast's async API needs asyncio; call the blocking"
                " API in a thread: `await trio.to_thread.run_sync(task.sync.enqueue, …)`"
            ) from None
        raise HoldfastError(
            "nothing was done: no asyncio event loop runs here; use `app.sync` in blocking code, or asyncio.run()"
        ) from None


def refuse_blocking() -> None:
    """Raise where a blocking call would block the event loop or thread that has to answer it."""
    refuse_caller()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise HoldfastError(
            "nothing was done: this thread runs an event loop, which app.sync would block; use `await` with the async"
            " API"
        )
    if _trio_runs():
        raise HoldfastError(
            "nothing was done: this thread runs a trio event loop, which app.sync would block; use another thread:"
            " `await trio.to_thread.run_sync(task.sync.enqueue, …)`"
        )


def refuse_caller() -> None:
    """Raise, before anything is done, where a call could never be answered."""
    if sys.is_finalizing():
        raise HoldfastError(
            "nothing was done: the interpreter is shutting down, and Holdfast's threads have ended; make this call"
            " before the program ends, or in a function registered with `atexit`"
        )
    thread = threading.current_thread()
    ours = isinstance(thread, AppThread)
    awaits = ours and thread.runs_loop and asyncio._get_running_loop() is not None  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    if (ours or hasattr(marked, "yes") or getattr(marked, "writing", None)) and not awaits:
        raise HoldfastError(
            "nothing was done: the call came from a finalizer (`__del__`) that the garbage collector ran in one of"
            " Holdfast's own threads or during a write, which cannot wait for itself; do not call the app in finalizers"
        )
    for name, (function, subject) in PATCHED.items():
        patcher = sys.modules.get(name)
        if patcher is not None and getattr(patcher, function)(subject):
            raise _needs_threads(f"{name.partition('.')[0]} has replaced them")


def refuse_program() -> None:
    """Raise when an app is made in a program in which no call could be answered, so that its server does not start.

    With `--preload` gunicorn makes the app before its workers, forked later, replace threads: without this check each
    request would fail.
    """
    refuse_caller()
    for module, patcher in PATCHING_SERVERS.items():
        if module in sys.modules:
            raise _needs_threads(f"{patcher} replaces them in gunicorn's workers")


def _needs_threads(why: str) -> ConfigError:
    return ConfigError(
        f"Holdfast needs real threads, and {why} (monkey-patching): use a server with threads, such as"
        " `gunicorn --worker-class gthread`"
    )


def _trio_runs() -> bool:
    lowlevel = sys.modules.get("trio.lowlevel")
    return lowlevel is not None and lowlevel.in_trio_run()
