"""`holdfast pause`, `resume`, `purge`, `move`: pause queues and tasks, delete jobs, give jobs another task."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..core.errors import ConfigError, InvalidJob
from . import completion, options
from .bulk import in_bulk, reasons_text
from .connect import make_app, note_unknown, with_app

if TYPE_CHECKING:
    from ..app import Holdfast

QueueName = Annotated[str | None, typer.Argument(metavar="QUEUE", show_default=False, autocompletion=completion.queues)]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="Name of a task, instead of a queue.", autocompletion=completion.tasks),
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=VALUE", help="Only jobs with this argument, as JSON or text; repeatable."),
]


def pause(queue: QueueName = None, task: TaskName = None, where: Where = None, url: options.Url = None) -> None:
    """Pause a queue or a task: no more of its jobs start; running jobs continue."""
    given = _arguments(where)
    with_app(url, lambda app: app.pause(queue, task=task, where=given), create=True)
    note = "" if task is None else " Workers apply the pause within about one poll interval."
    print(f"{_what(queue, task, where)} paused.{note}")


def resume(queue: QueueName = None, task: TaskName = None, where: Where = None, url: options.Url = None) -> None:
    """Resume a queue or task; give the same queue, --task and --where as to pause."""
    given = _arguments(where)

    async def work(app: Holdfast) -> list[str] | None:
        return None if await app.resume(queue, task=task, where=given) else await _paused(app)

    paused = with_app(url, work)
    if paused is not None:
        known = f"these are paused: {', '.join(paused)}" if paused else "nothing is paused"
        typer.echo(f"holdfast: {_what(queue, task, where)} is not paused, so it was not resumed; {known}", err=True)
        raise typer.Exit(1)
    print(f"{_what(queue, task, where)} resumed.")


async def _paused(app: Holdfast) -> list[str]:
    """Every paused queue and task, written as arguments of `resume`."""
    queues = [shlex.quote(queue.name) for queue in (await app.stats()).queues if queue.paused]
    return [*queues, *(pause.flags for pause in await app.bulk.paused_tasks())]


def _arguments(pairs: list[str] | None) -> dict[str, Any] | None:
    if not pairs:
        return None
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise InvalidJob(f"--where takes NAME=VALUE, such as customer=42, not {pair!r}")
        try:
            given[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            given[name] = text
    return given


def _what(queue: str | None, task: str | None, where: list[str] | None) -> str:
    if task is None:
        return f"Queue {queue}"
    return f"Task {task} where {', '.join(where)}" if where else f"Task {task}"


def purge(
    *,
    state: options.State = None,
    queue: options.Queue = None,
    task: options.TaskName = None,
    tag: options.Tag = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only jobs that ended longer ago than this, such as 7d.")
    ] = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    url: options.Url = None,
) -> None:
    """Delete jobs permanently: dead jobs, unless --state is given. Running jobs are not deleted."""
    from ..core.settings import duration
    from ..views import states_named

    states = states_named(state or ["dead"])
    try:
        age = None if older_than is None else duration(older_than)
    except ValueError:
        raise ConfigError(
            f"--older-than takes a duration such as 90 (seconds), 15m or 7d, not {older_than!r}"
        ) from None
    which: dict[str, Any] = {"state": states, "queue": queue, "task": task, "tag": tag, "older_than": age}
    purge_jobs(url, which, f"{', '.join(states)} jobs", yes=yes, dry_run=dry_run)


def purge_jobs(url: str | None, which: dict[str, Any], what: str, *, yes: bool, dry_run: bool) -> None:
    """Delete the jobs that match; without `yes`, after the user has confirmed their number."""
    from ..client.search import Filter

    wanted = None
    if which.get("older_than") is None:
        wanted = Filter(state=which["state"], queue=which["queue"], task=which.get("task"), tag=which.get("tag"))
    if dry_run or not yes:
        again = "holdfast purge"
        seen = in_bulk(
            url, "counted", wanted, lambda app, on: app.bulk.purge(**which, dry_run=True, progress=on), again
        )
        matched = seen.matched - seen.skipped
        if dry_run:
            print(f"{matched} {what} match; none was deleted.")
            return
        if matched:
            whose = f" of queue {which['queue']}" if which["queue"] else ""
            typer.confirm(f"Delete {matched} {what}{whose} permanently?", abort=True)
    seen = in_bulk(url, "deleted", wanted, lambda app, on: app.bulk.purge(**which, progress=on), "holdfast purge")
    print(f"{seen.changed} of {seen.matched} {what} deleted.")
    if seen.skipped:
        print(f"{seen.skipped} skipped: {reasons_text(seen)}.")


def move(
    task: Annotated[str, typer.Argument(metavar="TASK", autocompletion=completion.tasks)],
    to: Annotated[str, typer.Argument(metavar="NEW_TASK", autocompletion=completion.tasks)],
    *,
    queue: options.Queue = None,
    dry_run: options.DryRun = False,
    url: options.Url = None,
) -> None:
    """Give the waiting and dead jobs of a task another task, with the same arguments. Dead jobs stay dead."""
    note_unknown(make_app(url), to)
    seen = in_bulk(
        url,
        "counted" if dry_run else "moved",
        None,
        lambda app, progress: app.bulk.move(task, to, queue=queue, dry_run=dry_run, progress=progress),
        "holdfast move",
    )
    if dry_run:
        print(f"{seen.matched} jobs match; none was moved.")
        return
    print(f"{seen.changed} of {seen.matched} jobs moved from task {task} to {to}.")
    if seen.skipped:
        print(f"{seen.skipped} skipped: {reasons_text(seen)}.")
