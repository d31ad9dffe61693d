"""`holdfast check`: which waiting jobs and schedules of a store the code of an application would not accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ConfigError, HoldfastError
from . import options
from .connect import make_app, parts_of, root, where

if TYPE_CHECKING:
    from ..worker.deploy_check import Report


def check(
    *,
    against: Annotated[
        str | None,
        typer.Option("--against", "--url", metavar="URL", help="The store to check. (default: the application's)"),
    ] = None,
    imports: options.Imports = None,
    discover: options.Discover = None,
    queue: options.Queue = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Check at most this many jobs: the newest.")] = None,
    shell: Annotated[bool, typer.Option("--shell", help="The workers run shell jobs too.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check which waiting jobs and schedules the code of an application would refuse; exit code 1 if any.

    Jobs are decoded as by a worker, and none is changed. For an http URL, a token with the role read is enough.
    """
    import asyncio
    import sys

    from ..core.clock import SystemClock
    from ..core.url import redact
    from ..store.open import open_store
    from ..worker.deploy_check import check as check_store
    from .printing import document

    if root["app"] is None:
        raise ConfigError("nothing was checked: no app is named. Name the app whose tasks are checked: -A module:app")
    app = make_app(None, imports or (), discover or ())
    parts = parts_of(app)
    if shell:
        from ..worker.run.shell import allow_shell

        allow_shell(parts, None)
    against = against or root["url"]
    store = parts.runtime.store if against is None else open_store(against, SystemClock())
    shown = where(app) if against is None else redact(against)
    checking = check_store(parts.registry, store, declared=parts.schedules.declared, queue=queue, limit=limit)
    try:
        report = asyncio.run(checking)
    except HoldfastError as error:
        error.add_note(f"the store is {shown}")
        raise
    if not report.checked + report.not_checked:
        place = shown if queue is None else f"queue {queue!r} of {shown}"
        print(f"holdfast: note: nothing waits in {place}: check that this is the store that you mean", file=sys.stderr)
    if as_json:
        document(report)
    else:
        _print(report, shown)
    raise typer.Exit(1 if report.refused else 0)


def _print(report: Report, store: str) -> None:
    from .printing import echo

    part = "" if report.complete else " (the newest; raise --limit to check older ones)"
    for group in report.groups:
        kind = {"flow": "flow job", "follow_up": "follow-up"}.get(group.kind, group.kind)
        echo(f"{group.count:,} {kind}{'s' if group.count > 1 else ''} of task {group.task}: {group.error}")
        echo(f"  {', '.join(group.samples)}{', …' if group.count > len(group.samples) else ''}")
    if report.open:
        echo(
            f"{report.open:,} job{'s take' if report.open > 1 else ' takes'} results of other jobs that have not ended,"
            " or are too large to read; the types of these results were not checked."
        )
    if report.not_checked:
        echo(f"{report.not_checked:,} pickled calls were not checked: use a token with the roles read and work.")
    if not report.checked:
        echo(f"Found no jobs and schedules to check in {store}.")
        return
    verdict = f"{report.refused:,} would be refused" if report.refused else "all would be accepted"
    echo(f"Checked {report.checked:,} jobs and schedules in {store}{part}: {verdict}.")
