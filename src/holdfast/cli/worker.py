"""`holdfast worker …`: run workers from the shell."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Annotated

import typer

from ..errors import ConfigError

app = typer.Typer(help="Run workers.", no_args_is_help=True)


@app.command()
def start(
    application: Annotated[str, typer.Option("-A", "--app", help="The application, as module:app.")],
    *,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in this terminal.")] = False,
    queues: Annotated[str | None, typer.Option(help="Queues to serve, with commas. [default: the tasks']")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=10_000, help="Jobs at once. [default: 10]")] = None,
    lease: Annotated[float | None, typer.Option(help="Seconds a claim holds without a heartbeat.")] = None,
    grace: Annotated[float | None, typer.Option(help="Seconds that running jobs get when it stops.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Run a worker process. SIGTERM or Ctrl-C stops it gracefully, a second one at once."""
    if not foreground:
        raise ConfigError("a worker runs in this terminal for now: add --foreground")
    from ..observe.logs import set_up
    from ..settings import combine, from_environment, parse
    from ..worker import Worker
    from .load import load_app

    flags = {"lease": lease, "grace": grace, "log_level": log_level}
    settings = combine({k: v for k, v in flags.items() if v is not None}, from_environment(os.environ), {})
    set_up(settings.log_level, settings.log_format)
    holdfast = load_app(application)
    names = None if queues is None else [name.strip() for name in queues.split(",") if name.strip()]
    worker = Worker(
        holdfast,
        names,
        concurrency,
        lease=None if lease is None else parse("lease", lease),
        grace=None if grace is None else parse("grace", grace),
    )

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        async with holdfast:
            await worker.run()

    asyncio.run(run())
    # A thread that ignores its cancellation cannot be stopped; its job has been given back, so do not wait for it.
    os._exit(0)
