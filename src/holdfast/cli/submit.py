"""What `holdfast enqueue` does: enqueue one job from JSON or a command line, or many from a file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core.errors import HoldfastError, InvalidJob
from .connect import make_app, note_unknown, parts_of, run

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..observe.events import JobEvent
    from ..tasks.task import Call

NO_OPTIONS = {"words", "task", "args", "file", "url", "as_json"}
"""Parameters of the command that are not job options."""
FLAGS = {"at": "run_at", "tag": "tags"}
"""Parameters with another name in a job's JSON."""


def submit(parameters: dict[str, Any]) -> None:
    """Enqueue what the parameters of the command describe."""
    flags = {FLAGS.get(name, name): value for name, value in parameters.items() if name not in NO_OPTIONS}
    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != []}
    words, task, args, at = (parameters.get(name) for name in ("words", "task", "args", "at"))
    url, as_json = parameters.get("url"), parameters.get("as_json", False)
    if given.get("env"):
        given["env"] = _environment(given["env"])
    if at is not None:
        from .spec import moment

        moment(at, "--at")
    many = _lines(parameters.get("file"), words)
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
    import asyncio

    from ..store.group_commit import PAGE
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
        print(f"holdfast: {name} was not enqueued: {error_message(error)}", file=sys.stderr)
    if as_json:
        json({"enqueued": stored, "refused": len(refused)})
    else:
        print(f"{stored} jobs enqueued" + (f", {len(refused)} refused" if refused else ""))
    if refused:
        sys.exit(1)


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
