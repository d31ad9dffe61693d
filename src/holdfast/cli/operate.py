"""`holdfast pause`, `resume`, `purge`: operate a store."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import ConfigError
from . import options
from .connect import with_app

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", show_default=False)]


def pause(queue: QueueName, url: options.Url = None) -> None:
    """Stop handing out a queue's jobs; those that run go on."""
    with_app(url, lambda app: app.pause(queue))
    print(f"Queue {queue} paused.")


def resume(queue: QueueName, url: options.Url = None) -> None:
    """Hand out a queue's jobs again."""
    with_app(url, lambda app: app.resume(queue))
    print(f"Queue {queue} resumed.")


def purge(
    *,
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="A state; may be given again.")] = None,
    queue: options.Queue = None,
    task: options.TaskName = None,
    tag: options.Tag = None,
    older_than: Annotated[str | None, typer.Option(help="Only jobs that ended so long ago, such as 7d.")] = None,
    yes: options.Yes = False,
    url: options.Url = None,
) -> None:
    """Delete jobs for good: the dead, unless a state is named. Running ones stay."""
    states = state or ["dead"]
    from ..settings import duration
    from ..view import states_named

    states_named(states)
    try:
        age = None if older_than is None else duration(older_than)
    except ValueError:
        raise ConfigError(f"--older-than takes a time such as 90, 15m or 7d, not {older_than!r}") from None
    if not yes:
        typer.confirm(
            f"Delete the {', '.join(states)} jobs{f' of queue {queue}' if queue else ''} for good?", abort=True
        )
    count = with_app(url, lambda app: app.purge(state=states, queue=queue, task=task, tag=tag, older_than=age))
    print(f"{count} jobs deleted.")
