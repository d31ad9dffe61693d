"""Shell completion of states, queues, tasks and job ids, read from the store that the command line names.

A store that is missing or does not answer offers nothing: completion prints no errors.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from . import connect

if TYPE_CHECKING:
    from ..app import Holdfast

OFFERED = 100
"""The number of jobs, newest first, whose ids and tasks are offered."""
PATIENCE = 5.0
"""Seconds until completion gives up on a store."""
Offers = list[tuple[str, str]]
"""Values with their descriptions."""


def states() -> list[str]:
    """Every state of a job."""
    from ..core.job import State

    return [state.value for state in State]


def queues(ctx: typer.Context) -> Offers:
    """The queues of the store."""

    async def read(app: Holdfast) -> Offers:
        return [(one.name, f"{one.counts.get('queued', 0)} queued") for one in (await app.stats()).queues]

    return _ask(ctx, read)


def tasks(ctx: typer.Context) -> Offers:
    """The tasks of the application of -A, and those of recent jobs."""

    async def read(app: Holdfast) -> list[str]:
        return [job.task for job in (await app.jobs(limit=OFFERED)).jobs]

    def both() -> Offers:
        app = connect.make_app(ctx.params.get("url"))
        known = connect.parts_of(app).registry.tasks if connect.root["app"] else ()
        return [(name, "") for name in dict.fromkeys([*known, *connect.run(app, read)])]

    return _quietly(both)


def job_ids(ctx: typer.Context) -> Offers:
    """The ids of recent jobs."""

    async def read(app: Holdfast) -> Offers:
        return [(job.id, f"{job.state.value}, {job.task}") for job in (await app.jobs(limit=OFFERED)).jobs]

    return _ask(ctx, read)


def _ask(ctx: typer.Context, read: Callable[[Holdfast], Awaitable[Offers]]) -> Offers:
    return _quietly(lambda: connect.with_app(ctx.params.get("url"), read))


def _give_up(*_: object) -> None:
    os._exit(1)


def _quietly(work: Callable[[], Offers]) -> Offers:
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    # The application may print when it is imported, and raise anything; the shell would take its output for offers.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return work()
        except Exception:  # noqa: BLE001
            return []
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
