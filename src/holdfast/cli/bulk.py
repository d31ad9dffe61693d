"""Bulk operations in a terminal: progress bar, Ctrl-C between two steps, exact counts also after an error."""

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

REASONS = {
    "state": "in a state that does not allow this", "moved": "changed concurrently", "not_found": "not found",
    "flow": "needed by a flow, or a flow with nothing to retry", "key": "with the key of another unfinished job",
    "damaged": "with stored data that cannot be decoded",
    "follow_up": "with a follow-up that cannot be stored", "refused": "refused by the store",
    "scope": "outside the token's scope",
}  # fmt: skip
"""Why jobs are skipped: each name of `Changed.reasons` as text."""


def in_bulk(
    url: str | None,
    done: str,
    wanted: Filter | None,
    work: Callable[[Holdfast, OnProgress], Awaitable[int]],
    again: str,
) -> Changed:
    """Change many jobs with a progress bar; `wanted` selects the jobs that the bar counts, None: total unknown.

    Ctrl-C stops after the current step, so the printed counts are exact, and exits with code 130.
    """

    async def run(app: Holdfast) -> _Watch:
        counted = None if wanted is None or not sys.stderr.isatty() else await app.bulk.count(wanted)
        watch = _Watch(done, counted.count if counted is not None and counted.exact else None)
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(signal.SIGINT, watch.stop, loop)
        try:
            with watch.shown:
                await work(app, watch)
        except HoldfastError as error:
            unknown = isinstance(error, OutcomeUnknown)
            more = "; whether one more step of up to 1000 jobs was written is unknown" if unknown else ""
            if watch.last.changed or unknown:
                error.add_note(f"{watch.last.changed} jobs were {done} before the error{more}")
            raise
        except BaseException:
            seen = f"{watch.last.changed} jobs were {done}, up to 1000 more may have been {done}"
            typer.echo(f"holdfast: aborted: {seen}; run the same `{again}` command again to continue", err=True)
            raise
        finally:
            with suppress(NotImplementedError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
        return watch

    watch = with_app(url, run)
    if watch.last.cursor is not None:
        seen = counts(done, watch.last)
        typer.echo(f"holdfast: interrupted: {seen}; run the same `{again}` command again to continue", err=True)
        raise typer.Exit(130)
    return watch.last


def counts(done: str, seen: Changed) -> str:
    """The counts of a bulk operation as text."""
    skipped = f", {seen.skipped} skipped ({reasons_text(seen)})" if seen.skipped else ""
    return f"{seen.matched} jobs matched, {seen.changed} {done}{skipped}"


def reasons_text(seen: Changed) -> str:
    """The reasons why jobs were skipped, each with its count."""
    return ", ".join(f"{number} {REASONS[reason]}" for reason, number in sorted(seen.reasons.items()))


class _Watch:
    """Keeps the counts of the last step and updates the progress bar if stderr is a terminal."""

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
        """Stop after the current step; a second Ctrl-C aborts at once."""
        self._stopped = True
        loop.remove_signal_handler(signal.SIGINT)


def _bar(done: str, total: int | None) -> tuple[AbstractContextManager[Any], Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=Console(stderr=True))
    task = shown.add_task(done, total=total)
    return shown, lambda number: shown.update(task, completed=number)
