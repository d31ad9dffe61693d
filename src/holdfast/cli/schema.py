"""`holdfast migrate` and `holdfast doctor`: migrate the schema of a store and check its configuration."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ..core.errors import HoldfastError
from ..store.protocol import Examining, Finding, Migrating
from . import options, printing
from .connect import make_app, parts_of, with_app


def migrate(
    *,
    check: Annotated[bool, typer.Option("--check", help="Only print missing versions; exit code 1 if any.")] = False,
    dump_sql: Annotated[bool, typer.Option("--dump-sql", help="Print the SQL instead of running it.")] = False,
    url: options.Url = None,
) -> None:
    """Migrate the store's schema to this version. Safe while workers of the old version run."""
    store = parts_of(make_app(url)).runtime.store
    if not isinstance(store, Migrating):
        print(f"The {store.name} store has no schema: nothing to migrate.")
        return
    if dump_sql:
        print(store.dump_sql(), end="")
    elif check:
        missing = asyncio.run(store.missing())
        versions = ", ".join(map(str, missing))
        print(
            f"Missing schema versions: {versions}; run `holdfast migrate`." if missing else "The schema is up to date."
        )
        raise typer.Exit(1 if missing else 0)
    else:
        applied = asyncio.run(_apply(store))
        print(f"Applied version {', '.join(map(str, applied))}." if applied else "The schema is up to date.")


async def _apply(store: Migrating) -> list[int]:
    try:
        return await store.migrate()
    finally:
        await store.close()


def _refused(store: object, url: str | None) -> list[Finding]:
    """Findings about refused jobs; none if the schema is not this version's."""
    if isinstance(store, Migrating) and asyncio.run(store.missing()):
        return []
    advice = (
        "deploy the code of these jobs to the workers of the queue, or run `holdfast move` or `holdfast purge --task`"
    )
    return [Finding(False, str(one), advice) for one in with_app(url, lambda app: app.errors.refused())]


def doctor(*, as_json: options.AsJson = False, url: options.Url = None) -> None:
    """Check the store's configuration for risks, and for refused jobs; exit code 1 if a check of the store fails.

    Refused jobs are only a warning: during a deploy they are normal, and workers of the new code take them.
    """
    store = parts_of(make_app(url)).runtime.store
    if not isinstance(store, Examining):
        findings = [Finding(True, f"the {store.name} store has no checks")]
    else:
        findings = asyncio.run(store.examine())
    refused: list[Finding] = []
    if all(finding.fine for finding in findings[:1]):  # else the schema is missing or cannot be read
        try:
            refused = _refused(store, url)
        except HoldfastError as error:
            what = f"refused jobs could not be read: {error}"
            findings.append(Finding(False, what, "correct this error, then run `holdfast doctor` again"))
    failed = not all(finding.fine for finding in findings)
    findings += refused
    if as_json:
        printing.document(findings)
    else:
        for finding in findings:
            printing.echo(f"{'ok  ' if finding.fine else 'warn'}  {finding.what}")
            if not finding.fine and finding.advice:
                printing.echo(f"      {finding.advice}")
    raise typer.Exit(1 if failed else 0)
