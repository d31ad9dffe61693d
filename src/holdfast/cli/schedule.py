"""`holdfast schedule …`: what is enqueued by the clock."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import InvalidJob
from ..core.settings import duration
from . import options
from .connect import make_app, note_unknown, say_none, with_app
from .connect import run as open_with
from .spec import call, parsed

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..schedules.schedule import Schedule

app = typer.Typer(help="What is enqueued by the clock.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command("list")
def list_all(url: options.Url = None, as_json: options.AsJson = False) -> None:
    """List the schedules, with their last and next runs."""
    app = make_app(url)
    found = open_with(app, lambda app: app.schedules.list())
    from .printing import document, moment, say, table

    if as_json:
        document([one.shown() for one in found])
    elif not found:
        say_none(app, "schedules")
    else:
        rows = [
            (one.name, one.task, one.words, moment(one.last_run), "paused" if one.paused else moment(one.next_run))
            for one in found
        ]
        table("Schedules", ("Name", "Task", "When", "Last run", "Next run"), rows, keep=("Name",))
        for one in found:
            if one.error is not None:
                say(f"Schedule {one.name}: its last run could not be made: {one.error}")


@app.command()
def show(name: Name, url: options.Url = None, as_json: options.AsJson = False) -> None:
    """Show one schedule: when it runs, and the jobs that it makes."""
    from ..views import limits_text

    kept = with_app(url, lambda app: app.schedules.get(name))
    from .printing import document, moment, say

    if as_json:
        document(kept.shown())
        return
    rule, retry = kept.rule, kept.retry
    lines = {
        "schedule": kept.name + (" (declared by code)" if kept.in_code else ""),
        "task": kept.task,
        "payload": bytes(kept.payload).decode(),
        "when": kept.words + ("" if rule.cron is None else f" ({rule.cron})"),
        "catch up": rule.catch_up,
        "jitter": f"{rule.jitter:g} s" if rule.jitter else None,
        "overlap": rule.overlap,
        "queue": kept.queue,
        "priority": kept.priority or None,
        "attempts": kept.max_attempts,
        "timeout": None if kept.timeout is None else f"{kept.timeout:g} s",
        "retry": None if retry is None else f"{retry.base:g} s, times {retry.factor:g}, up to {retry.cap:g} s",
        "tags": ", ".join(kept.tags) or None,
        "expires": None if kept.expires is None else f"after {kept.expires:g} s",
        "limits": limits_text(kept.limits),
        "last run": moment(kept.last_run) or None,
        "last job": kept.last_job,
        "next run": "paused" if kept.paused else moment(kept.next_run),
        "error": kept.error,
    }
    for word, value in lines.items():
        if value is not None:
            say(f"{word:10} {value}")


@app.command()
def put(
    name: Name,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="A shell command.", show_default=False)
    ] = None,
    *,
    cron: Annotated[str | None, typer.Option(help="A cron line, such as '0 3 * * *', or @daily.")] = None,
    every: Annotated[str | None, typer.Option(help="An interval, such as 90, 15m or 1d.")] = None,
    tz: Annotated[str, typer.Option(help="The time zone of the cron line, such as Europe/Oslo.")] = "UTC",
    task: Annotated[str | None, typer.Option(help="A task by name, instead of a shell command.")] = None,
    args: Annotated[str | None, typer.Option(help="Its arguments: a JSON list, or an object by name.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="The queue of its jobs.")] = None,
    catch_up: Annotated[int, typer.Option(help="Missed runs that are made up for.")] = 1,
    jitter: Annotated[str, typer.Option(help="Put each run off by up to so many seconds (or 15m).")] = "0",
    overlap: Annotated[str, typer.Option(help="skip: no run while the last one's job has not ended.")] = "allow",
    url: options.Url = None,
    application: options.Application = None,
) -> None:
    """Make a schedule, or change the one of this name.

    holdfast schedule put backup --cron '0 3 * * *' --tz Europe/Oslo -- tar czf backup.tgz data

    holdfast schedule put report --every 15m --task report --args '{"day": "today"}'
    """
    if task is None and not words:
        raise InvalidJob("say what to run: -- COMMAND, or --task NAME")
    if task is not None and words:
        raise InvalidJob("give either --task or a command, not both")
    if (cron is None) == (every is None):
        raise InvalidJob("give either --cron or --every")
    given: dict[str, Any] = {"queue": queue}
    if task is None:
        given["command"] = words[0] if words and len(words) == 1 else shlex.join(words or ())
    else:
        given |= {"task": task, "args": None if args is None else parsed(args, "--args: ")}

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
        )
        return kept, declared

    app = make_app(url, application)
    note_unknown(app, application, task)
    kept, declared = open_with(app, keep, create=True)
    _say(kept)
    if declared:
        print("It is declared by code: the next worker that starts with that code changes it back.")


@app.command()
def pause(name: Name, url: options.Url = None) -> None:
    """Make no more runs until it is resumed."""
    _say(with_app(url, lambda app: app.schedules.pause(name)))


@app.command()
def resume(name: Name, url: options.Url = None) -> None:
    """Make its runs again, from now on."""
    _say(with_app(url, lambda app: app.schedules.resume(name)))


@app.command()
def run(name: Name, url: options.Url = None) -> None:
    """Enqueue it once, now, beside its usual runs."""
    handle = with_app(url, lambda app: app.schedules.run_now(name))
    print(f"Job {handle.id} enqueued by schedule {name}.")


@app.command()
def delete(name: Name, url: options.Url = None) -> None:
    """Forget a schedule; jobs that it made stay."""

    async def forget(app: Holdfast) -> bool:
        declared = await _declared(app, name)
        await app.schedules.delete(name)
        return declared

    declared = with_app(url, forget)
    print(f"Schedule {name} deleted.")
    if declared:
        print("It was declared by code: the next worker that starts with that code makes it again.")


async def _declared(app: Holdfast, name: str) -> bool:
    return any(one.in_code for one in await app.schedules.list() if one.name == name)


def _seconds(text: str, option: str) -> float:
    try:
        return duration(text)
    except ValueError:
        raise InvalidJob(f"{option} takes seconds, or a time such as 15m, 2h or 1d, not {text!r}") from None


def _say(kept: Schedule) -> None:
    from .printing import moment, say

    say(f"Schedule {kept.name}: {kept.words}; {'paused' if kept.paused else f'next run {moment(kept.next_run)}'}.")
