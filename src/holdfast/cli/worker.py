"""`holdfast worker …`: start, stop and list workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ConfigError
from . import control, options
from .connect import make_app, parts_of, print_none, root, run, watching, where

if TYPE_CHECKING:
    from ..app import Holdfast

app = typer.Typer(help="Run workers.", no_args_is_help=True)


@app.command()
def start(
    *,
    imports: options.Imports = None,
    discover: options.Discover = None,
    count: Annotated[int, typer.Option("--count", "-c", min=1, max=256, help="Worker processes.")] = 1,
    foreground: Annotated[bool, typer.Option("--foreground", "-f", help="Run in this terminal or container.")] = False,
    queues: Annotated[
        str | None, typer.Option(help="Queues with weights: mail:5,default:1. (default: the queues of the tasks)")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Concurrent jobs in each process. (default: 10, or 100 if all tasks are async)"
        ),
    ] = None,
    shell: Annotated[bool, typer.Option("--shell", help="Run shell jobs besides the application's tasks.")] = False,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A variable or pattern (AWS_*) passed to shell jobs; repeatable."),
    ] = None,
    lease: Annotated[float | None, typer.Option(help="Seconds until a claim without a heartbeat expires.")] = None,
    grace: Annotated[str | None, typer.Option(help="Seconds (or 15m, 2h) that running jobs get at a stop.")] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Exit when no job is left to run.")] = False,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Restart each process after this many jobs.")] = None,
    max_memory: Annotated[str | None, typer.Option(help="Restart each process above this memory (500MB).")] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when a Python file changes.")] = False,
    handover: Annotated[
        bool, typer.Option("--handover", help="Once ready, let older workers of this store finish their jobs and exit.")
    ] = False,
    metrics_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="Serve Prometheus metrics on this loopback PORT, or HOST:PORT.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
    url: options.Url = None,
) -> None:
    """Start worker processes under a supervisor: in the background, or in this terminal with --foreground.

    Without -A they run shell jobs: anyone who can write to the store can run commands on this machine.
    SIGTERM or Ctrl-C stops them gracefully, a second one at once.
    """
    import msgspec

    from ..core.settings import combine, from_environment, parse, redact, size
    from ..worker import background, state
    from ..worker.service import Service, parse_queues

    application = root["app"]
    flags = {"lease": lease, "grace": grace, "log_level": log_level, "metrics_port": metrics_port}
    settings = combine({k: v for k, v in flags.items() if v is not None}, from_environment(os.environ), {})
    try:
        max_bytes = None if max_memory is None else size(max_memory, 2**50)
    except ValueError as error:
        raise ConfigError(f"--max-memory {error}, not {max_memory!r}") from None
    holdfast = make_app(url, imports or (), discover or ())
    service = Service(
        count=count,
        application=application,
        imports=tuple(parts_of(holdfast).imports),
        shell=shell,
        pass_env=None if pass_env is None else parse("pass_env", pass_env),
        queues=None if queues is None else parse_queues(queues),
        concurrency=concurrency,
        lease=None if lease is None else parse("lease", lease),
        grace=None if grace is None else parse("grace", grace),
        drain=drain,
        max_jobs=max_jobs,
        max_memory=max_bytes,
        reload=reload,
        handover=handover,
        log_level=settings.log_level,
        log_format=settings.log_format,
        metrics=settings.metrics_port,
        metrics_prefix=settings.metrics_prefix,
    )
    _check_reachable(holdfast)
    service = msgspec.structs.replace(service, engine=parts_of(holdfast).runtime.store.name)
    key, shown = state.store_key(holdfast), redact(parts_of(holdfast).url)
    if not foreground:
        pid, pids = background.start(service, key, parts_of(holdfast).url)
        workers = f"{count} worker{'s' if count > 1 else ''}"
        print(f"Started {workers} on {shown}: {', '.join(map(str, pids))} (supervisor {pid})")
        print(f"Log: {state.log_path(key)}")
        return
    if application is None:
        os.environ["HOLDFAST_URL"] = parts_of(holdfast).url
    from .foreground import replace_process

    replace_process(service, key)


def _check_reachable(app: Holdfast) -> None:
    """Raise an error if the store cannot be opened; a missing one is created."""
    from ..store.protocol import Replicated

    async def opened(app: Holdfast) -> None:
        """Does nothing: opening the app has shown it."""

    async def connected(store: Replicated) -> None:
        light = store.heartbeat_only()  # does not load all jobs
        try:
            await light.open()
        finally:
            await light.close()

    store = parts_of(app).runtime.store
    if isinstance(store, Replicated):
        import asyncio

        asyncio.run(connected(store))
    else:
        run(app, opened, create=True)


for command in (control.quiet, control.resume, control.drain, control.restart, control.concurrency, control.stacks):
    app.command()(command)


@app.command()
def stop(
    *,
    workers: control.Workers = None,
    host: control.Host = None,
    version: control.Version = None,
    everyone: control.Everyone = False,
    now: Annotated[bool, typer.Option("--now", help="Release running jobs at once; no attempt is used.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Wait for running jobs without a time limit.")] = False,
    wait: Annotated[bool, typer.Option(help="Return only when the workers have exited.")] = True,
    timeout: control.Timeout = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Stop this store's workers on this machine, gracefully; or the named ones, on any machine."""
    targets = control.Targets(workers, host, version, everyone, timeout)
    if targets.given:
        if finish:
            raise ConfigError("--finish is for the workers of this machine: use `holdfast worker drain` instead")
        control.send("stop", targets, url, as_json=as_json, now=now)
        return
    from ..worker import state

    holdfast = make_app(url)
    found = state.running(state.store_key(holdfast))
    if not found:
        print(f"No workers of {where(holdfast)} run on this machine.")
        return
    for one in found:
        one.signal(signal.SIGUSR1 if finish else signal.SIGTERM)
        if now:
            time.sleep(0.2)  # two signals sent at once are delivered as one
            one.signal(signal.SIGTERM)
    total = sum(one.count for one in found)
    print(
        f"Stopping {total} worker{'s' if total > 1 else ''} (supervisor {', '.join(str(one.pid) for one in found)}) …"
    )
    sys.stdout.flush()
    while wait and any(one.alive for one in found):
        time.sleep(0.05)
    if wait:
        print("Stopped.")


@app.command("list")
def list_workers(url: options.Url = None, as_json: options.AsJson = False, watch: options.Watch = False) -> None:
    """List the live workers of all machines: node, pid, queues, running jobs."""

    async def refresh(app: Holdfast) -> None:
        from .printing import document, json, moment, table

        workers = await app.workers()
        if as_json:
            (json if watch else document)(workers)
        elif not workers:
            print_none(app, "live workers")
        else:
            rows = [
                (
                    one.node,
                    one.pid,
                    one.kind,
                    one.state if one.kind == "worker" else "",
                    ", ".join(one.queues),
                    f"{len(one.jobs)}/{one.slots or len(one.jobs)}",
                    ", ".join(one.jobs),
                    moment(one.started_at),
                    f"{one.last_heartbeat:.0f} s ago",
                    one.id,
                )
                for one in workers
            ]
            columns = ("Node", "PID", "Kind", "State", "Queues", "Busy", "Jobs", "Since", "Last Heartbeat", "ID")
            table("Workers", columns, rows, keep=("Node", "PID"))

    watching(url, refresh, watch=watch, as_json=as_json)
