"""Bulk operations at a terminal: a progress bar, Ctrl-C after a whole step, and exact counts whatever happens."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import typer

from ..core.errors import HoldfastError, OutcomeUnknown
from .connect import with_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..client.bulk_change import Changed, OnProgress
    from ..client.search import Filter

WORDS = {
    "state": "in no state for it", "moved": "changed by others meanwhile", "not_found": "gone",
    "flow": "needed by a flow, or with nothing to retry", "key": "with a key that another live job has",
    "damaged": "damaged", "refused": "refused", "scope": "out of scope",
}  # fmt: skip
"""Why jobs are skipped, as `Changed.reasons` names it."""


def in_bulk(
    url: str | None,
    done: str,
    wanted: Filter | None,
    work: Callable[[Holdfast, OnProgress], Awaitable[int]],
    again: str,
) -> Changed:
    """Change many jobs, showing how far it is; `wanted` is what the bar counts, None where that is not known.

    Ctrl-C ends it after the step that is under way, so that what it says of the jobs is exact: then this exits.
    """

    async def run(app: Holdfast) -> _Watch:
        counted = None if wanted is None or not sys.stderr.isatty() else await app.bulk.count(wanted)
        watch = _Watch(done, counted.count if counted is not None and counted.exact else None)
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):  # not in the main thread, as under a test
            loop.add_signal_handler(signal.SIGINT, watch.stop, loop)
        try:
            with watch.shown:
                await work(app, watch)
        except HoldfastError as error:
            unknown = isinstance(error, OutcomeUnknown)
            more = "; one more step of up to 1000 may be written" if unknown else ""
            error.add_note(f"{watch.last.changed} jobs were {done} in the steps before{more}")
            raise
        except BaseException:
            typer.echo(
                f"holdfast: ended at once: {watch.last.changed} jobs were {done}, and up to 1000 more may be", err=True
            )
            raise
        finally:
            with suppress(NotImplementedError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
        return watch

    watch = with_app(url, run)
    if watch.last.cursor is not None:
        typer.echo(f"holdfast: interrupted: {counts(done, watch.last)}; `{again}` goes on with the rest", err=True)
        raise typer.Exit(130)
    return watch.last


def counts(done: str, seen: Changed) -> str:
    """The counts of a bulk operation in words."""
    skipped = f", {seen.skipped} skipped ({why(seen)})" if seen.skipped else ""
    return f"{seen.matched} jobs matched, {seen.changed} {done}{skipped}"


def why(seen: Changed) -> str:
    """Why jobs were skipped, and how many for each reason."""
    return ", ".join(f"{number} {WORDS[reason]}" for reason, number in sorted(seen.reasons.items()))


class _Watch:
    """Takes in what each step did, and shows it where a person looks on."""

    def __init__(self, done: str, total: int | None) -> None:
        from ..client.bulk_change import Changed

        self.last = Changed(0, 0, 0, 0, None)
        self.shown: AbstractContextManager[Any] = nullcontext()
        self._stopped = False
        self._update: Callable[[int], None] | None = None
        if sys.stderr.isatty():
            self.shown, self._update = _bar(done, total)

    def __call__(self, seen: Changed) -> bool:
        self.last = seen
        if self._update is not None:
            self._update(seen.changed + seen.skipped or seen.matched)
        return not self._stopped

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """After this step; a second Ctrl-C does not wait for it."""
        self._stopped = True
        loop.remove_signal_handler(signal.SIGINT)


def _bar(done: str, total: int | None) -> tuple[AbstractContextManager[Any], Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True))
    task = shown.add_task(done, total=total)
    return shown, lambda number: shown.update(task, completed=number)
