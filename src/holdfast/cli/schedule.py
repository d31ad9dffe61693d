"""`holdfast schedule …`: manage cron and interval schedules."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import InvalidJob
from ..core.settings import duration
from . import completion, options
from .connect import make_app, note_unknown, print_none, with_app
from .connect import run as open_with
from .spec import ARGUMENTS, call, parsed
from .spec import moment as given_moment

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..schedules.schedule import Schedule

app = typer.Typer(help="Cron and interval schedules.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command("list")
def list_all(url: options.Url = None, as_json: options.AsJson = False) -> None:
    """List the schedules, with their last and next runs."""
    app = make_app(url)
    found = open_with(app, lambda app: app.schedules.list())
    from .printing import document, echo, moment, table

    if as_json:
        document([one.shown() for one in found])
    elif not found:
        print_none(app, "schedules")
    else:
        rows = [(one.name, one.task, one.words, moment(one.last_run), _next(one)) for one in found]
        table("Schedules", ("Name", "Task", "When", "Last run", "Next run"), rows, keep=("Name",))
        for one in found:
            if one.error is not None:
                echo(f"Schedule {one.name}: the last run could not be enqueued: {one.error}")


@app.command()
def show(name: Name, url: options.Url = None, as_json: options.AsJson = False) -> None:
    """Show one schedule: when it runs, and the options of its jobs."""
    from ..views import limits_text

    kept = with_app(url, lambda app: app.schedules.get(name))
    from .printing import document, echo_fields, moment

    if as_json:
        document(kept.shown())
        return
    rule, retry = kept.rule, kept.retry
    fields = {
        "schedule": kept.name + (" (declared in code)" if kept.in_code else ""),
        "task": kept.task,
        "payload": bytes(kept.payload).decode(),
        "when": kept.words + ("" if rule.cron is None else f" ({rule.cron})"),
        "catch up": rule.catch_up,
        "jitter": f"{rule.jitter:g} s" if rule.jitter else None,
        "overlap": rule.overlap,
        "start": moment(kept.start) or None,
        "end": moment(kept.end) or None,
        "queue": kept.queue,
        "priority": kept.priority or None,
        "attempts": kept.max_attempts,
        "timeout": None if kept.timeout is None else f"{kept.timeout:g} s",
        "retry": None if retry is None else f"{retry.base:g} s, times {retry.factor:g}, up to {retry.cap:g} s",
        "tags": ", ".join(kept.tags) or None,
        "expires": None if kept.expires is None else f"after {kept.expires:g} s",
        "deadline": None if kept.deadline is None else f"after {kept.deadline:g} s",
        "stall timeout": None if kept.stall_timeout is None else f"{kept.stall_timeout:g} s",
        "limits": limits_text(kept.limits),
        "last run": moment(kept.last_run) or None,
        "last job": kept.last_job,
        "next run": _next(kept),
        "error": kept.error,
    }
    echo_fields(fields)


@app.command()
def put(
    name: Name,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="A shell command.", show_default=False)
    ] = None,
    *,
    cron: Annotated[str | None, typer.Option(help="A cron expression, such as '0 3 * * *', or @daily.")] = None,
    every: Annotated[str | None, typer.Option(help="An interval, such as 90, 15m or 1d.")] = None,
    tz: Annotated[str, typer.Option(help="Time zone of the cron expression, such as Europe/Oslo.")] = "UTC",
    task: Annotated[
        str | None, typer.Option(help="Name of a task, instead of a shell command.", autocompletion=completion.tasks)
    ] = None,
    args: Annotated[str | None, typer.Option(help="Arguments of the task: a JSON list or object.")] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="The queue of its jobs.", autocompletion=completion.queues)
    ] = None,
    catch_up: Annotated[int, typer.Option(help="Maximum number of missed runs to enqueue late.")] = 1,
    jitter: Annotated[str, typer.Option(help="Delay each run by up to this many seconds (or 15m).")] = "0",
    overlap: Annotated[str, typer.Option(help="allow, or skip: no run while the last job has not ended.")] = "allow",
    start: Annotated[str | None, typer.Option(help="No run before this time, such as 2030-01-31T12:00Z.")] = None,
    end: Annotated[str | None, typer.Option(help="No run after this time.")] = None,
    url: options.Url = None,
) -> None:
    """Create or change a schedule.

    holdfast schedule put backup --cron '0 3 * * *' --tz Europe/Oslo -- tar czf backup.tgz data

    holdfast schedule put report --every 15m --task report --args '{"day": "today"}'
    """
    if task is None and not words:
        raise InvalidJob(f"schedule {name!r} was not stored: it needs -- COMMAND, or --task NAME")
    if task is not None and words:
        raise InvalidJob(f"schedule {name!r} was not stored: give either --task or a command, not both")
    if (cron is None) == (every is None):
        raise InvalidJob(f"schedule {name!r} was not stored: give exactly one of --cron and --every")
    given: dict[str, Any] = {"queue": queue}
    if task is None:
        given["command"] = words[0] if words and len(words) == 1 else shlex.join(words or ())
    else:
        given |= {
            "task": task,
            "args": None if args is None else parsed(args, f"schedule {name!r} was not stored: --args: ", ARGUMENTS),
        }

    async def keep(app: Holdfast) -> tuple[Schedule, bool]:
        made = call(app, given)
        declared = await _declared(app, name)
        kept = await app.schedules.put(
            name,
            made,
            cron=cron,
            every=None if every is None else _seconds(every, "--every"),
            tz=tz,
            catch_up=catch_up,
            jitter=_seconds(jitter, "--jitter"),
            overlap=overlap,
            start=None if start is None else given_moment(start, "--start"),
            end=None if end is None else given_moment(end, "--end"),
        )
        return kept, declared

    app = make_app(url)
    note_unknown(app, task)
    kept, declared = open_with(app, keep, create=True)
    _print(kept)
    if declared:
        print("This schedule is declared in code: the next worker that starts with that code reverts the change.")


@app.command()
def pause(name: Name, url: options.Url = None) -> None:
    """Pause a schedule: no runs until it is resumed."""
    _print(with_app(url, lambda app: app.schedules.pause(name)))


@app.command()
def resume(name: Name, url: options.Url = None) -> None:
    """Resume a paused schedule; runs missed during the pause are not enqueued."""
    _print(with_app(url, lambda app: app.schedules.resume(name)))


@app.command()
def run(name: Name, url: options.Url = None) -> None:
    """Enqueue one extra run of a schedule now."""
    handle = with_app(url, lambda app: app.schedules.run_now(name))
    print(f"Job {handle.id} enqueued by schedule {name}.")


@app.command()
def delete(name: Name, url: options.Url = None) -> None:
    """Delete a schedule; its jobs are kept."""

    async def remove(app: Holdfast) -> bool:
        declared = await _declared(app, name)
        await app.schedules.delete(name)
        return declared

    declared = with_app(url, remove)
    print(f"Schedule {name} deleted.")
    if declared:
        print("This schedule is declared in code: the next worker that starts with that code creates it again.")


async def _declared(app: Holdfast, name: str) -> bool:
    return any(one.in_code for one in await app.schedules.list() if one.name == name)


def _seconds(text: str, option: str) -> float:
    try:
        return duration(text)
    except ValueError:
        raise InvalidJob(f"{option} takes seconds, or a duration such as 15m, 2h or 1d, not {text!r}") from None


def _print(kept: Schedule) -> None:
    from .printing import echo

    following = _next(kept) if kept.next_run is None else f"next run {_next(kept)}"
    echo(f"Schedule {kept.name}: {kept.words}; {following}.")


def _next(kept: Schedule) -> str:
    from .printing import moment

    return "paused" if kept.paused else moment(kept.next_run) or "no more runs"
