"""The setting `HOLDFAST` of a Django project, and the URL of the store that it means."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from django.conf import settings
from django.db import connections

from ...core.errors import ConfigError

PASSED_ON = frozenset({
    "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "passfile", "application_name", "options",
    "target_session_attrs", "service", "servicefile", "connect_timeout",
})  # fmt: skip
"""Connection options of a Postgres database in `DATABASES` that apply to Holdfast's own connections too."""


class Configuration(msgspec.Struct, frozen=True):
    """The setting `HOLDFAST`, checked."""

    url: str | None = None
    """The store; None: the database of the project."""
    database: str = "default"
    """The alias of the database whose transactions jobs are a part of."""
    parameters: Mapping[str, Any] = {}
    """Parameters of the store's URL, such as `schema`, if the store is the project's database."""
    settings: Mapping[str, Any] = {}
    """Keyword arguments of `Holdfast(…)`."""
    imports: tuple[str, ...] = ()
    """Modules that define tasks, besides the `tasks.py` of installed apps."""
    immediate: bool = False
    """Jobs run where they are enqueued, and are stored in memory."""

    @property
    def database_settings(self) -> dict[str, Any]:
        """The settings of the database; in a test, those of the test database."""
        known = database_settings()
        if self.database not in known:
            raise ConfigError(
                f"HOLDFAST['DATABASE'] is {self.database!r}, which is not in DATABASES: name one of {', '.join(known)}"
            )
        return known[self.database]

    @property
    def in_database(self) -> bool:
        """Whether the store is in the project's database, so that jobs can be part of its transactions."""
        return self.url is None and not self.immediate and not self.in_memory

    @property
    def in_memory(self) -> bool:
        """Whether the project's database is a SQLite database in memory, as in tests: no store can be in it."""
        if self._vendor != "sqlite":
            return False
        name = str(self.database_settings["NAME"])
        return ":memory:" in name or "mode=memory" in name

    @property
    def _vendor(self) -> str:
        _ = self.database_settings
        return connections[self.database].vendor

    def find_url(self) -> str:
        """The URL of the store."""
        if self.immediate:
            return "memory://"
        if self.url is not None:
            return self.url
        if self._vendor == "postgresql":
            return self.with_parameters(postgres_url(self.database_settings))
        if self._vendor == "sqlite":
            return (
                "memory://" if self.in_memory else self.with_parameters(self.file_url(self.database_settings["NAME"]))
            )
        raise ConfigError(
            f"Holdfast has no store for the database {self.database!r} ({self._vendor}): set HOLDFAST['URL'] to a"
            " store, such as redis://… or sqlite:///…"
        )

    @staticmethod
    def file_url(name: str | Path) -> str:
        """The URL of a SQLite database."""
        if str(name).startswith("file:"):
            raise ConfigError(f"the database is named by a URI ({name}): name its file itself, or set HOLDFAST['URL']")
        return f"sqlite:///{quote(str(name))}"

    def with_parameters(self, url: str) -> str:
        """A URL of the database, with the parameters of the setting."""
        if not self.parameters:
            return url
        return f"{url}{'&' if '?' in url else '?'}{urlencode(self.parameters)}"


def database_settings() -> dict[str, dict[str, Any]]:
    """`DATABASES`, by alias."""
    handler: Any = connections
    return handler.settings


@cache
def current() -> Configuration:
    """The configuration of this process."""
    given = getattr(settings, "HOLDFAST", {})
    if not isinstance(given, dict):
        raise ConfigError(f"the setting HOLDFAST must be a dict, not {given!r:.100}")
    made = Configuration(**{str(name).lower(): _checked(name, value) for name, value in given.items()})
    if made.url is not None and made.parameters:
        raise ConfigError(
            "HOLDFAST['PARAMETERS'] cannot be combined with HOLDFAST['URL']: append them to this URL, as ?name=value"
        )
    return made


def _checked(name: str, value: object) -> Any:
    kinds = {one.name.upper(): one.type for one in msgspec.structs.fields(Configuration)}
    if name not in kinds:
        close = get_close_matches(str(name).upper(), kinds, 1)
        hint = f"did you mean {close[0]!r}? Its" if close else "its"
        raise ConfigError(
            f"the setting HOLDFAST has no {name!r}: {hint} keys are {', '.join(kinds)};"
            " settings such as max_attempts are in HOLDFAST['SETTINGS']"
        )
    try:
        return msgspec.convert(value, kinds[name])
    except msgspec.ValidationError as error:
        raise ConfigError(f"HOLDFAST[{name!r}] is not valid: {error}") from None


def postgres_url(database: Mapping[str, Any]) -> str:
    """The URL of a database with the engine of Postgres."""
    options = {name: value for name, value in database["OPTIONS"].items() if name in PASSED_ON}
    host = str(database["HOST"] or "")
    if host.startswith("/"):  # the folder of a socket
        options, host = {"host": host, **options}, ""
    elif ":" in host:  # an IPv6 address
        host = f"[{host}]"
    if host and database["PORT"]:
        host += f":{database['PORT']}"
    elif database["PORT"]:
        options["port"] = database["PORT"]
    login = quote(str(database["USER"]), safe="")
    if login and database["PASSWORD"]:
        login += f":{quote(str(database['PASSWORD']), safe='')}"
    elif database["PASSWORD"]:
        options["password"] = database["PASSWORD"]
    at = f"{login}@{host}" if login else host
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{at}/{quote(str(database['NAME'] or ''), safe='')}{query}"
