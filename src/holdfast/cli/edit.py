"""`holdfast edit`, `clone`: change a waiting job, or enqueue a job like another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import InvalidJob
from . import completion, options
from .connect import make_app, run

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..views import Job

ArgsJson = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="All arguments: a list, or an object of named ones.")
]
NewQueue = Annotated[str | None, typer.Option("--queue", "-q", help="Another queue.", autocompletion=completion.queues)]
NewPriority = Annotated[int | None, typer.Option("--priority", "-p", help="Another priority; lower first.")]
NewDelay = Annotated[str | None, typer.Option(help="Start at the earliest after this time from now, such as 15m.")]
NewTime = Annotated[str | None, typer.Option("--at", help="Start at the earliest at this time, with its zone.")]


def edit(
    id: options.JobId,
    *,
    args: ArgsJson = None,
    queue: NewQueue = None,
    priority: NewPriority = None,
    delay: NewDelay = None,
    at: NewTime = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Edit a job that has not started: its arguments, time, priority or queue.

    Without -A, arguments are not checked against the task.
    """
    edits = _edits(args, queue, priority, delay, at)

    async def work(app: Holdfast) -> Job:
        return await app.handle(id).edit(**edits)

    job = run(make_app(url), work)
    if as_json:
        from .printing import document

        document(job)
        return
    from .printing import echo, moment
    from .printing import work as shown

    echo(f"Job {id} edited: {shown(job)}, queue {job.queue}, priority {job.priority}, due {moment(job.run_at)}.")


def clone(
    id: options.JobId,
    *,
    args: ArgsJson = None,
    queue: NewQueue = None,
    priority: NewPriority = None,
    delay: NewDelay = None,
    at: NewTime = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key of the new job.")] = None,
    max_attempts: options.MaxAttempts = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Enqueue a new job like another one, in any state, with edits."""
    edits = _edits(args, queue, priority, delay, at)
    edits |= {name: value for name, value in (("key", key), ("max_attempts", max_attempts)) if value is not None}

    async def work(app: Holdfast) -> str:
        return (await app.handle(id).clone(**edits)).id

    new = run(make_app(url), work)
    if as_json:
        from .printing import json

        json({"id": new, "cloned_from": id})
    else:
        print(f"Job {new} enqueued, a clone of job {id}.")


def _edits(
    args: str | None, queue: str | None, priority: int | None, delay: str | None, at: str | None
) -> dict[str, Any]:
    """The given edits, each in its type."""
    from ..core.settings import duration
    from .spec import ARGUMENTS, moment, parsed

    edits: dict[str, Any] = {"queue": queue, "priority": priority}
    if args is not None:
        edits["args"] = parsed(args, "--args: ", ARGUMENTS)
    if delay is not None:
        try:
            edits["delay"] = duration(delay)
        except ValueError:
            raise InvalidJob(f"--delay takes a duration such as 90 (seconds) or 15m, not {delay!r}") from None
    if at is not None:
        edits["at"] = moment(at, "--at")
    return {name: value for name, value in edits.items() if value is not None}
