"""`holdfast enqueue`: its command line. `submit.py` has its work, and `quick_enqueue.py` its usual options."""

from __future__ import annotations

from typing import Annotated

import typer

from . import completion, options
from .submit import submit


def enqueue(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JSON | - | -- COMMAND…", help="A job as JSON, `-` for JSON lines from stdin, or a command."
        ),
    ] = None,
    *,
    task: Annotated[
        str | None, typer.Option(help="Name of a task, instead of a shell command.", autocompletion=completion.tasks)
    ] = None,
    args: Annotated[str | None, typer.Option(help="Arguments of the task: a JSON list or object.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="Many jobs, one JSON object per line.")] = None,
    id: Annotated[str | None, typer.Option(help="The job's id. (default: a new UUID)")] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="The queue. (default: default)", autocompletion=completion.queues),
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Lower runs first. (default: 0)")] = None,
    delay: Annotated[str | None, typer.Option(help="Start after this many seconds (or 15m, 2h, 1d).")] = None,
    at: Annotated[
        str | None, typer.Option(help="Start at a time, such as 2030-01-31T12:00:00Z, or epoch seconds.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(help="Maximum run time in seconds (or 15m, 2h).")] = None,
    stall_timeout: Annotated[
        str | None, typer.Option(help="Maximum seconds (or 15m) of a run without progress, output or checkpoint.")
    ] = None,
    max_retries: options.MaxAttempts = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: a second enqueue returns the first job.")] = None,
    unique: Annotated[
        str | None, typer.Option(help="Keep one job per key: until_start, until_end, or a duration (15m).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the waiting job of the same key.")] = False,
    debounce: Annotated[
        str | None, typer.Option(help="Replace the waiting job of the key; it starts this long after the last call.")
    ] = None,
    debounce_max: Annotated[str | None, typer.Option(help="Maximum delay since the first debounced call.")] = None,
    expires: Annotated[str | None, typer.Option(help="Latest start: in 15m, or at 2030-01-31T12:00:00Z.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Latest end over all attempts: in 15m, or at 2030-01-31T12:00:00Z.")
    ] = None,
    on_success: Annotated[
        str | None, typer.Option(help="A task to enqueue when the job has succeeded; its argument is the job's id.")
    ] = None,
    on_dead: Annotated[
        str | None, typer.Option(help="A task to enqueue when the job is dead; its argument is the job's id.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; repeatable.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Working directory of a command.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for a command; repeatable.")] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Enqueue a job: a shell command, or a task of your application.

    holdfast enqueue '{"id": "job1", "command": "sleep 2 && echo hi", "max_retries": 3}'

    holdfast enqueue -- echo hi

    holdfast enqueue --task add --args '[1, 2]'

    holdfast enqueue --file jobs.jsonl
    """
    submit(locals())
