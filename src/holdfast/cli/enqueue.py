"""`holdfast enqueue`: one job from JSON or words, or many from a file."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import HoldfastError, InvalidJob
from ..store.group_commit import PAGE
from . import options
from .connect import make_app, note_unknown, parts_of, run

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..observe.events import JobEvent
    from ..tasks.task import Call

NO_OPTIONS = {"words", "task", "args", "file", "url", "application", "as_json"}
"""Parameters of the command that are no part of a job."""
FLAGS = {"at": "run_at", "tag": "tags"}
"""Parameters that have another name in a job's JSON."""


def enqueue(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JSON | - | -- COMMAND…", help="A job as JSON, `-` for JSON lines from stdin, or a command."
        ),
    ] = None,
    *,
    task: Annotated[str | None, typer.Option(help="A task by name, instead of a shell command.")] = None,
    args: Annotated[str | None, typer.Option(help="Its arguments: a JSON list, or an object by name.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="Many jobs, one JSON object per line.")] = None,
    id: Annotated[str | None, typer.Option(help="The job's id. (default: a new one)")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="The queue. (default: default)")] = None,
    priority: Annotated[int | None, typer.Option(help="Lower comes first. (default: 0)")] = None,
    delay: Annotated[str | None, typer.Option(help="Start in so many seconds (or 15m, 2h, 1d).")] = None,
    at: Annotated[str | None, typer.Option(help="Start at a time, such as 2030-01-31T12:00:00Z.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Seconds (or 15m, 2h) that it may run.")] = None,
    max_retries: Annotated[
        int | None, typer.Option("--max-retries", "--max-attempts", help="Starts in all, the first included.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same again gives the same job.")] = None,
    unique: Annotated[
        str | None, typer.Option(help="Keep one job per key: until_start, until_end, or a duration (15m).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="If its key's job still waits, replace that.")] = False,
    debounce: Annotated[str | None, typer.Option(help="Replace it, and start so long after the last call.")] = None,
    debounce_max: Annotated[str | None, typer.Option(help="But at most so long after the first.")] = None,
    expires: Annotated[str | None, typer.Option(help="Too late to start: in 15m, or at 2030-01-31T12:00:00Z.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be given again.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Where a command runs.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for a command; may be given again.")] = None,
    url: options.Url = None,
    application: options.Application = None,
    as_json: options.AsJson = False,
) -> None:
    """Store a job: a shell command, or a task of your application.

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
    app = make_app(url, application)
    if many is not None:
        if given or task or args:
            raise InvalidJob("with many jobs, each line says what it wants: leave the other options out")
        _enqueue_all(app, many, as_json=as_json)
        return
    if task is not None:
        if words:
            raise InvalidJob("give either --task or a command, not both")
        from .spec import parsed

        given |= {"task": task, "args": None if args is None else parsed(args, "--args: ")}
        note_unknown(app, application, task)
    else:
        given = _from_words(words or []) | given
    _enqueue_one(app, given, as_json=as_json)


def _environment(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise InvalidJob(f"--env takes NAME=VALUE, not {pair!r}")
    return dict(pair.split("=", 1) for pair in pairs)


def _lines(file: str | None, words: list[str] | None) -> Iterator[bytes] | None:
    if file is not None and file != "-":
        if words:
            raise InvalidJob("give either --file or one job, not both")
        try:
            return iter(open(file, "rb"))  # read to its end, then the command is over
        except OSError as error:
            raise InvalidJob(f"--file {file}: {error.strerror}") from None
    return iter(sys.stdin.buffer) if file == "-" or words == ["-"] else None


def _from_words(words: list[str]) -> dict[str, Any]:
    if not words:
        raise InvalidJob('say what to run: \'{"command": "echo hi"}\', or -- echo hi, or --task NAME')
    if "--" in sys.argv:
        return {"command": words[0] if len(words) == 1 else shlex.join(words)}
    if len(words) > 1:
        raise InvalidJob(f"to run a command, put -- before it: holdfast enqueue -- {shlex.join(words)}")
    from .spec import read

    return read(words[0])


def _enqueue_one(app: Holdfast, given: dict[str, Any], *, as_json: bool) -> None:
    from .spec import call

    known: list[str] = []

    def met(event: JobEvent) -> None:
        known.append(event.name)

    app.on("idempotent_submission", met)
    app.on("job_replaced", met)

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
        print(f"Job {id} waited, and was replaced: {shown}")
    else:
        print(f"Job {id} is there already, by its key: {shown}" if known else f"Job {id} enqueued: {shown}")


def _enqueue_all(app: Holdfast, lines: Iterator[bytes], *, as_json: bool) -> None:
    """Check every line, then store a thousand at a time; one that is refused does not hold back the others."""
    from .spec import call, read

    calls: list[Call[Any]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"line {number}: "
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
    from .printing import json, told

    for one, error in refused[:10]:
        typer.echo(f"holdfast: {one.options.id or one.task.name}: {told(error)}", err=True)
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
