"""Strict URL parsing: a URL that could be read in two ways is rejected, and the error shows no part of it.

A password with a `/`, `?`, `#`, `@` or `%` that is not percent-encoded ends up anywhere in a URL: in the port, the
path, a parameter. So a message about a malformed URL names its scheme only; one about a valid URL shows it redacted.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NoReturn
from urllib.parse import quote, unquote

import msgspec

from .errors import ConfigError

Host = tuple[str, int | None]
"""(host, port)"""

SQLITE = frozenset({"sqlite", "sqlite+pysqlite", "sqlite+aiosqlite"})
"""With the names of SQLAlchemy's drivers, so that one URL is for both."""
LOCAL = frozenset({"memory", "file", "unix"}) | SQLITE
"""Schemes without a host. An @ in their path ends no password."""
_WHOLE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_PATH = re.compile(r"(?:\./)*([\w./-]+\.(?:db|sqlite|sqlite3))", re.ASCII)
"""The path of a database file, which no part of a password ends like."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%25[\w.-]+)?)\]|([^\[\]:\s]*))(?::([0-9]{1,5})?)?", re.ASCII)
_SECRET = re.compile(r"(?i)pass|pwd|secret|token|key|credential|signature|^sig$")
_ENCODE = "percent-encode / ? # [ ] @ and % in a user name or password (a / is %2F)"


class Url(msgspec.Struct, frozen=True):
    """A valid URL, split and decoded."""

    text: str
    scheme: str
    username: str | None
    password: str | None
    authority: str
    """The text between the user and the path, as written."""
    hosts: tuple[Host, ...]
    path: str
    options: dict[str, str]

    def wrong(self, why: str) -> ConfigError:
        """The error for a valid URL that cannot be used here. `why` must not contain a value of the URL."""
        return ConfigError(f"{redact(self.text)}: {why}")

    def verifies(self) -> bool:
        """Whether the server's certificate is verified: ?verify=, `yes` by default."""
        verify = self.options.get("verify", "yes")
        if verify not in ("yes", "no"):
            raise self.wrong("?verify= must be yes or no")
        return verify == "yes"

    def timeout(self, default: float) -> float:
        """The seconds of ?timeout=."""
        try:
            timeout = float(self.options.get("timeout", default))
        except ValueError:
            timeout = 0.0
        if not 0 < timeout < 1e6:
            raise self.wrong("?timeout= must be a number of seconds above 0 and below 1000000")
        return timeout

    def refuse_unknown(self, known: Collection[str], suggested: Collection[str] | None = None) -> None:
        """Raise ConfigError for an unknown parameter, listing those in `suggested`."""
        if unknown := sorted(set(self.options) - set(known)):
            # After a secret with an unescaped &, it may be a part of the secret.
            hidden = any(map(_SECRET.search, self.options))
            named = (
                " (not shown: it may be part of a secret; write & in a secret as %26)"
                if hidden
                else f" {', '.join(unknown)}"
            )
            listed = ", ".join(known if suggested is None else suggested)
            raise self.wrong(f"unknown parameter{named}" + (f"; known: {listed}" if listed else "; remove it"))

    def encoded(self, scheme: str, options: dict[str, str]) -> str:
        """The same location as a URL that every driver parses in the same way."""
        user = "" if self.username is None else quote(self.username, safe="")
        secret = "" if self.password is None else f":{quote(self.password, safe='')}"
        hosts = ",".join(
            (f"[{host}]" if ":" in host else quote(host, safe="")) + ("" if port is None else f":{port}")
            for host, port in self.hosts
        )
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in options.items())
        at = "@" if user or secret else ""
        return f"{scheme}://{user}{secret}{at}{hosts}{quote(self.path)}{'?' if query else ''}{query}"


def split(url: str) -> Url:
    """Split a URL; ConfigError if it is malformed or ambiguous."""
    found = _WHOLE.fullmatch(url)
    if found is None:
        if path := _PATH.fullmatch(url):
            raise ConfigError(f"the store must be a URL, not the path of a file: write sqlite:///{path[1]}")
        raise ConfigError(
            "the store's URL has no scheme; write a URL such as sqlite:///jobs.db, sqlite:////var/lib/jobs.db or"
            " postgresql://host/db"
        )
    scheme, authority, path, query, fragment = found.groups(default="")
    scheme = scheme.lower()

    def wrong(why: str) -> NoReturn:
        raise ConfigError(f"the {scheme}:// URL is malformed: {why}") from None

    if not url.isprintable() or re.search(r"%(?:[01][0-9A-Fa-f]|7[Ff])", path):
        wrong("it contains a control character or another invisible character; remove it")
    if re.search(r"%(?![0-9A-Fa-f]{2})", url):
        wrong("a % is not followed by two hexadecimal digits; for a % itself write %25")
    if fragment:
        wrong("it contains a #, which has no meaning here; write %23 for a literal #")
    pairs = [part.partition("=") for part in query.split("&") if part]
    if authority.count("@") > 1:
        wrong(f"it has more than one @; {_ENCODE}")
    # The value of ?signal= is a URL, which may contain another @.
    behind = "@" in path or any("@" in name or ("@" in value and name != "signal") for name, _, value in pairs)
    if behind and (authority or scheme not in LOCAL):
        wrong(f"it has an @ after the host; {_ENCODE}, and write an @ elsewhere as %40")
    if not all(name and equals for name, equals, _ in pairs) or ("?" in url and not pairs):
        wrong("parameters after the ? must be NAME=VALUE; write %3F for a literal ?")
    userinfo, at, where = authority.rpartition("@")
    username, colon, password = userinfo.partition(":")
    try:
        options = {unquote(name, errors="strict"): unquote(value, errors="strict") for name, _, value in pairs}
        if len(options) < len(pairs):
            wrong("a parameter is given twice; remove one of the two")
        return Url(
            text=url,
            scheme=scheme,
            username=unquote(username, errors="strict") if at else None,
            password=unquote(password, errors="strict") if colon else None,
            authority=where,
            hosts=() if scheme in LOCAL else tuple(map(_host, where.split(","))),
            path=unquote(path, errors="strict"),
            options=options,
        )
    except UnicodeDecodeError:
        wrong("its percent-encoded text is not UTF-8; encode it again as UTF-8")
    except _NoHost:
        wrong(f"each host must be HOST or HOST:PORT, with a port from 1 to 65535; {_ENCODE}")


class _NoHost(Exception):
    pass


def _host(text: str) -> Host:
    found = _HOST.fullmatch(text)
    if found is None:
        raise _NoHost
    address, name, port = found.groups()
    if port is not None and not 0 < int(port) < 65536:
        raise _NoHost
    host = unquote(address or name, errors="strict")
    if not host.isprintable() or " " in host:
        raise _NoHost
    return host, None if port is None else int(port)


def redact(url: str) -> str:
    """A URL without its password and secret-looking parameters, for display; of a malformed URL, only its scheme."""
    try:
        parts = split(url)
    except ConfigError:
        found = _WHOLE.fullmatch(url)
        return "***" if found is None else f"{found[1]}://***"
    before, question, query = url.partition("?")
    start, slashes, rest = before.partition("://")
    userinfo, at, rest = rest.rpartition("@") if parts.username is not None else ("", "", rest)
    user, colon, password = userinfo.partition(":")
    who = f"{user}{colon}{'***' if password else ''}"
    if at and not parts.scheme.startswith("postgres"):
        who = "***"  # for these schemes it may be a token or the first part of a password
    return f"{start}{slashes}{who}{at}{rest}{question}{_shown(query)}"


def _shown(query: str) -> str:
    """A query up to its first secret: after an unescaped & the same secret may continue."""
    shown: list[str] = []
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        plain = unquote(value)
        if _SECRET.search(unquote(name)) or ("://" in plain and redact(plain) != plain):
            return "&".join([*shown, f"{name}{equals}***"])
        shown.append(part)
    return "&".join(shown)
