"""`holdfast wait`: wait for the end of a job, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.job import State
from ..core.validation import checked_seconds
from . import options
from .connect import with_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..views import Job

Update = Callable[["Job"], None]


def wait(
    id: options.JobId,
    timeout: Annotated[float | None, typer.Option(min=0, help="Give up after this many seconds: exit code 1.")] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Wait until a job has ended, with its progress on a terminal; exit code 1 unless it succeeded."""

    async def watch(app: Holdfast) -> Job:
        import asyncio

        if timeout is not None:
            checked_seconds(timeout, "--timeout")
        handle = app.handle(id)
        shown, update = _bar() if sys.stderr.isatty() else (nullcontext(), None)
        with shown:
            async with asyncio.timeout(timeout):
                if update is not None:
                    update(await handle.job())
                    async for _ in handle.progress():
                        update(await handle.job())
                return await handle.wait()

    try:
        job = with_app(url, watch)
    except TimeoutError:
        print(f"holdfast: job {id} has not ended after {timeout:g} s; it continues: wait again", file=sys.stderr)
        raise typer.Exit(1) from None
    from .printing import document, echo

    if as_json:
        document(job)
    else:
        echo(f"Job {id} {job.state.value}" + (f": {job.error}" if job.error else ""))
    if job.state != State.SUCCEEDED:
        raise typer.Exit(1)


def _bar() -> tuple[AbstractContextManager[Any], Update]:
    """A progress bar on standard error, and what updates it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from .printing import clock_time, safe

    columns = [
        TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[share]", "fields[more]")
    ]
    shown = Progress(columns[0], BarColumn(), *columns[1:], console=Console(stderr=True))
    task = shown.add_task("", total=None, share="", more="")

    def update(job: Job) -> None:
        progress, end = job.progress, job.estimated_end
        share = None if progress is None else progress.share
        count = "" if progress is None else f"{progress.done:g}" if share is None else f"{share:.0%}"
        about = "" if progress is None else progress.note or ""
        shown.update(
            task,
            description=job.state.value,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            share=count,
            more=safe(f"{about}  {f'ends about {clock_time(end)}' if end else ''}".strip()),
        )

    return shown, update
