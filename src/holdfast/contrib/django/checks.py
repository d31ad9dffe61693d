"""System checks: the setting HOLDFAST, the tables of the store, and what SQLite needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core import checks

from ...core.errors import ConfigError, HoldfastError, MissingExtra
from .configuration import current, database_settings
from .connections import store_file


def register() -> None:
    """Register the checks; Django runs those of the database in `migrate` and `check --database default`."""
    checks.register(check_settings, "holdfast")
    checks.register(check_sqlite, "holdfast")
    checks.register(check_tables, checks.Tags.database)


def check_settings(**_: object) -> list[checks.CheckMessage]:
    """The store can be made: its settings are valid, and its driver is installed."""
    try:
        _opened()
    except (ConfigError, MissingExtra) as error:
        return [checks.Error(str(error), obj="HOLDFAST", id="holdfast.E001")]
    return []


def _opened() -> Any:
    from ...core.clock import SystemClock  # late: `manage.py` commands without checks need none of these
    from ...core.settings import combine
    from ...store.open import open_store

    found = current()
    combine(dict(found.settings), {}, {})
    return open_store(found.find_url(), SystemClock())


def check_sqlite(**_: object) -> list[checks.CheckMessage]:
    """A store in the SQLite file of a database of the project."""
    if check_settings() or (file := store_file()) is None:
        return []
    from ...store.sqlite import version

    databases = database_settings()
    shared = [alias for alias, one in databases.items() if _is_file(one, file)]
    found: list[checks.CheckMessage] = [
        checks.Warning(
            f"transactions of the database {alias!r} begin without SQLite's write lock, and the store of Holdfast is in"
            " the same file: a transaction that reads first may fail with 'database is locked'",
            hint=f"Set DATABASES[{alias!r}]['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE'}}.",
            id="holdfast.W001",
        )
        for alias in shared
        if databases[alias]["OPTIONS"].get("transaction_mode") != "IMMEDIATE"
    ]
    if shared and version.has_reset_bug():
        found.append(
            checks.Warning(
                f"SQLite {version.sqlite3.sqlite_version} may lose commits when two programs write to {file} and one of"
                " them makes checkpoints. Django's connections make none, but other programs do",
                hint="Let no other program write to it, or upgrade SQLite to 3.51.3, or give Holdfast its own file:"
                " HOLDFAST = {'URL': 'sqlite:////path/jobs.db'}. Jobs are then stored after the commit.",
                id="holdfast.W002",
            )
        )
    return found


def _is_file(database: dict[str, Any], file: Path) -> bool:
    return "sqlite" in database["ENGINE"] and Path(str(database["NAME"])).resolve() == file


def check_tables(databases: Sequence[str] | None = None, **_: object) -> list[checks.CheckMessage]:
    """The store has the tables of this version."""
    if not databases or check_settings() or current().database not in databases:
        return []
    from .schema import missing

    try:
        versions = missing(current().database)
    except HoldfastError as error:
        return [checks.Warning(f"the tables of Holdfast cannot be checked: {error}", id="holdfast.W004")]
    if not versions:
        return []
    what = f"tables of Holdfast are missing or old: schema version {', '.join(map(str, versions))} is not applied"
    return [checks.Warning(what, hint="`manage.py migrate` creates and updates them.", id="holdfast.W003")]
