"""`holdfast worker quiet|resume|drain|restart|concurrency|stacks`, and `stop` of workers by id: remote control."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..core.errors import ConfigError
from . import options
from .connect import with_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..client.control import ControlReply, Stack

Workers = Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids of workers.", show_default=False)]
Host = Annotated[str | None, typer.Option(help="All live workers of this node.")]
Version = Annotated[
    str | None, typer.Option("--version", help="All live workers with this release, or version of Holdfast.")
]
Everyone = Annotated[bool, typer.Option("--all", help="All live workers of the store.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, help="Seconds to wait for answers. (default: until after the next heartbeat)")
]
DONE = {
    "quiet": "claims no more jobs",
    "resume": "claims jobs again",
    "drain": "claims no more jobs, and stops when it is idle",
    "stop": "is stopping",
    "restart": "is stopping, and its supervisor starts another",
}


class Targets(NamedTuple):
    """Which workers a command is for."""

    workers: list[str] | None
    host: str | None
    version: str | None
    everyone: bool
    timeout: float | None

    @property
    def given(self) -> bool:
        return bool(self.workers or self.host is not None or self.version is not None or self.everyone)


def command(action: str, about: str) -> Callable[..., None]:
    """A command that sends workers a request without an argument."""

    def run(
        *,
        workers: Workers = None,
        host: Host = None,
        version: Version = None,
        everyone: Everyone = False,
        timeout: Timeout = None,
        url: options.Url = None,
        as_json: options.AsJson = False,
    ) -> None:
        send(action, Targets(workers, host, version, everyone, timeout), url, as_json=as_json)

    run.__name__, run.__doc__ = action, about
    return run


quiet = command(
    "quiet", "Let workers claim no more jobs; running jobs continue. It ends with `worker resume`, or with the process."
)
resume = command("resume", "Let workers claim jobs again, after `quiet` or `drain`.")
drain = command("drain", "Let workers claim no more jobs, and stop once none runs. They are not started again.")
restart = command("restart", "Stop workers gracefully; their supervisors start other processes.")
stacks = command(
    "stacks", "Print the stacks of threads, asyncio tasks and processes of workers, jobs first; no values of variables."
)


def concurrency(
    size: Annotated[int, typer.Argument(min=1, max=10_000, help="Concurrent jobs in each process.")],
    *,
    workers: Workers = None,
    host: Host = None,
    version: Version = None,
    everyone: Everyone = False,
    timeout: Timeout = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Change how many jobs a worker process runs at a time, until it ends."""
    send("concurrency", Targets(workers, host, version, everyone, timeout), url, as_json=as_json, size=size)


def send(
    action: str, targets: Targets, url: str | None, *, as_json: bool, size: int | None = None, now: bool = False
) -> None:
    """Send a request and print the answers; exit code 1 if a worker has not accepted it."""
    from ..client.control import Request

    if not targets.given:
        raise ConfigError(
            f"`worker {action}` needs to know which workers: give their ids (`holdfast worker list --json` shows them),"
            " --host, --version or --all"
        )
    request = Request(action, size=size, now=now)

    async def work(app: Holdfast) -> list[ControlReply]:
        return await app.workers.send(
            request,
            targets.workers or (),
            host=targets.host,
            version=targets.version,
            all_workers=targets.everyone,
            timeout=targets.timeout,
        )

    replies = with_app(url, work)
    if as_json:
        from .printing import document

        document(replies)
    else:
        for reply in replies:
            _print(reply)
    if any(reply.error is not None for reply in replies):
        raise typer.Exit(1)


def _print(reply: ControlReply) -> None:
    from .printing import echo

    if reply.error is not None:
        typer.echo(f"holdfast: {reply.error}", err=True)
        return
    if reply.action != "stacks":
        size = f"runs up to {reply.slots} jobs at a time"
        echo(f"Worker {reply.worker} {DONE.get(reply.action, size)}.")
        return
    echo(f"Worker {reply.worker} ({reply.state}): {len(reply.stacks)} stacks")
    for stack in reply.stacks:
        _print_stack(stack)
    if reply.left_out:
        echo(f"… and {reply.left_out} more")


def _print_stack(stack: Stack) -> None:
    from .printing import echo

    about = "" if stack.job is None else f": job {stack.job}, task {stack.task}"
    print()
    echo(f"{stack.kind} {stack.name}{about}")
    for frame in stack.frames:
        for line in frame.rstrip().splitlines():
            echo(line)
