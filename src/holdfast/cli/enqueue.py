"""`holdfast enqueue`: enqueue one job from JSON or a command line, or many from a file."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import HoldfastError, InvalidJob
from ..store.group_commit import PAGE
from . import completion, options
from .connect import make_app, note_unknown, parts_of, run

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..observe.events import JobEvent
    from ..tasks.task import Call

NO_OPTIONS = {"words", "task", "args", "file", "url", "as_json"}
"""Parameters of the command that are not job options."""
FLAGS = {"at": "run_at", "tag": "tags"}
"""Parameters with another name in a job's JSON."""


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
    max_retries: Annotated[
        int | None,
        typer.Option(
            "--max-retries", "--max-attempts", help="Attempts in total, including the first: with 1, no retry."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: a second enqueue returns the first job.")] = None,
    unique: Annotated[
        str | None, typer.Option(help="Keep one job per key: until_start, until_end, or a duration (15m).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the waiting job of the same key.")] = False,
    debounce: Annotated[str | None, typer.Option(help="As --replace, due this long after the last call.")] = None,
    debounce_max: Annotated[str | None, typer.Option(help="Maximum delay since the first debounced call.")] = None,
    expires: Annotated[str | None, typer.Option(help="Latest start: in 15m, or at 2030-01-31T12:00:00Z.")] = None,
    on_success: Annotated[
        str | None, typer.Option(help="A task to enqueue when the job has succeeded; its argument is the job's id.")
    ] = None,
    on_dead: Annotated[str | None, typer.Option(help="The same when the job is dead.")] = None,
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
    flags = {FLAGS.get(name, name): value for name, value in locals().items() if name not in NO_OPTIONS}
    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != []}
    if env:
        given["env"] = _environment(env)
    if at is not None:
        from .spec import moment

        moment(at, "--at")
    many = _lines(file, words)
    app = make_app(url)
    if many is not None:
        if given or task or args:
            raise InvalidJob(
                "no job was enqueued: --file and - take all job options from the JSON lines; remove the other options"
            )
        _enqueue_all(app, many, as_json=as_json)
        return
    if task is not None:
        if words:
            raise InvalidJob("no job was enqueued: give either --task or a command, not both")
        from .spec import ARGUMENTS, parsed

        given |= {"task": task, "args": None if args is None else parsed(args, "--args: ", ARGUMENTS)}
        note_unknown(app, task)
    else:
        given = _from_words(words or []) | given
    _enqueue_one(app, given, as_json=as_json)


def _environment(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise InvalidJob(f"--env takes NAME=VALUE, such as LANG=C, not {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)


def _lines(file: str | None, words: list[str] | None) -> Iterator[bytes] | None:
    if file is not None and file != "-":
        if words:
            raise InvalidJob("no job was enqueued: give either --file or one job, not both")
        try:
            return iter(open(file, "rb"))  # read to its end; the process then exits
        except OSError as error:
            raise InvalidJob(
                f"no job was enqueued: --file {file} cannot be read: {error.strerror}; check its path and permissions"
            ) from None
    return iter(sys.stdin.buffer) if file == "-" or words == ["-"] else None


def _from_words(words: list[str]) -> dict[str, Any]:
    if not words:
        raise InvalidJob('nothing to enqueue: give \'{"command": "echo hi"}\', or -- echo hi, or --task NAME')
    if "--" in sys.argv:
        return {"command": words[0] if len(words) == 1 else shlex.join(words)}
    if len(words) > 1:
        raise InvalidJob(f"to run a command, put -- before it: holdfast enqueue -- {shlex.join(words)}")
    from .spec import read

    return read(words[0], "no job was enqueued: ")


def _enqueue_one(app: Holdfast, given: dict[str, Any], *, as_json: bool) -> None:
    from .spec import call

    known: list[str] = []

    def record_event(event: JobEvent) -> None:
        known.append(event.name)

    app.on("idempotent_submission", record_event)
    app.on("job_replaced", record_event)

    async def store(app: Holdfast) -> str:
        made = call(app, given)
        return (await parts_of(app).enqueue.enqueue_call(made.task, made.options, made.args, made.kwargs)).id

    id = run(app, store, create=True)
    if as_json:
        from .printing import json

        json({"id": id, "created": not known})
        return
    from .printing import safe

    shown = safe(str(given.get("command") or given.get("cmd") or given.get("task")))
    if known == ["job_replaced"]:
        print(f"Job {id} was waiting and has been replaced: {shown}")
    else:
        print(f"Job {id} already exists with this key: {shown}" if known else f"Job {id} enqueued: {shown}")


def _enqueue_all(app: Holdfast, lines: Iterator[bytes], *, as_json: bool) -> None:
    """Validate all lines, then enqueue them in pages of 1000; a refused job does not stop the others."""
    from .spec import call, read

    calls: list[Call[Any]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"no job was enqueued: line {number}: "
            calls.append(call(app, read(line, where), where))
    refused: list[tuple[Call[Any], HoldfastError]] = []

    async def store(app: Holdfast) -> None:
        for start in range(0, len(calls), PAGE):
            some = calls[start : start + PAGE]
            _progress(start, len(calls))
            done = await asyncio.gather(*(_attempt(app, one) for one in some))
            refused.extend((one, error) for one, error in zip(some, done, strict=True) if error is not None)
        _progress(len(calls), len(calls))

    run(app, store, create=True)
    stored = len(calls) - len(refused)
    from .printing import error_message, json

    for one, error in refused[:10]:
        name = f"job {one.options.id}" if one.options.id else f"a job of task {one.task.name}"
        typer.echo(f"holdfast: {name} was not enqueued: {error_message(error)}", err=True)
    if as_json:
        json({"enqueued": stored, "refused": len(refused)})
    else:
        print(f"{stored} jobs enqueued" + (f", {len(refused)} refused" if refused else ""))
    if refused:
        raise typer.Exit(1)


async def _attempt(app: Holdfast, one: Call[Any]) -> HoldfastError | None:
    from ..core.errors import JobExists, KeyConflict, QueueFull

    try:
        await parts_of(app).enqueue.enqueue_call(one.task, one.options, one.args, one.kwargs)
    except (JobExists, KeyConflict, QueueFull) as error:
        return error
    return None


def _progress(done: int, total: int) -> None:
    if not sys.stderr.isatty() or not total:
        return
    width = 40 * done // total
    end = "\r\033[K" if done == total else ""
    sys.stderr.write(f"\r[{'#' * width:40}] {done}/{total}{end}")
    sys.stderr.flush()
