"""The address of a Redis store: servers, credentials and options, parsed from its URL."""

from __future__ import annotations

import ssl

import msgspec

from ...core.url import Url
from .tls import context

OPTIONS = (
    "prefix", "durability", "timeout", "db", "ca", "cert", "key", "verify", "sentinel_username", "sentinel_password",
)  # fmt: skip
DURABILITIES = ("server", "none", "fsync", "replicated")
DEFAULT_PREFIX = "holdfast"

Node = tuple[str, int]
"""(host, port)"""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a store. Frozen, so that siblings share it."""

    nodes: tuple[Node, ...] = ()
    path: str | None = None
    """The path of a Unix socket."""
    master: str | None = None
    """The name of the primary at the sentinels; `nodes` are sentinels then."""
    db: int = 0
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True
    prefix: str = DEFAULT_PREFIX
    durability: str = "server"
    timeout: float = 10.0
    """Seconds that a call may take, at most."""

    def __str__(self) -> str:
        place = self.path or ",".join(f"{host}:{port}" for host, port in self.nodes)
        return f"{self.master} of {place}" if self.master else f"{place}/{self.db}" if self.db else place

    def tls_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        return context(self.ca, self.cert, self.key, verify=self.verify)


def parse(url: Url) -> Address:
    secure, _, kind = url.scheme.partition("+")
    options, path = url.options, url.path
    if url.username and url.password is None:
        raise url.wrong(
            "the URL has a user name and no password: write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"
        )
    master, socket, db = None, None, options.get("db", "")
    if url.scheme == "unix":
        if not path.strip("/") or url.authority:
            raise url.wrong("the URL names no socket: write unix:///run/redis.sock")
        socket = path
    elif kind == "sentinel":
        master, _, in_path = path.strip("/").partition("/")
        if not master:
            raise url.wrong("the URL does not name the primary: write redis+sentinel://host:26379/mymaster")
        db = in_path or db
    else:
        db = path.strip("/") or db
    durability = options.get("durability", "server")
    if durability not in DURABILITIES:
        raise url.wrong(f"?durability= must be one of {', '.join(DURABILITIES)}")
    verify = url.verifies()
    prefix = options.get("prefix", DEFAULT_PREFIX)
    if not prefix or "{" in prefix or "}" in prefix:
        raise url.wrong("?prefix= must have at least one character, and no braces ({ and })")
    if db and not (db.isascii() and db.isdecimal() and len(db) < 10):
        raise url.wrong("the database must be a number, as in redis://host:6379/0")
    if kind == "cluster" and db not in ("", "0"):
        raise url.wrong("a cluster has only database 0; use ?prefix= to separate stores")
    port = 26379 if kind == "sentinel" else 6379
    return Address(
        nodes=tuple((host or "localhost", given or port) for host, given in url.hosts),
        path=socket,
        master=master,
        db=int(db or 0),
        username=url.username or None,
        password=url.password or None,
        tls=secure == "rediss",
        **{name: options.get(name) for name in ("sentinel_username", "sentinel_password", "ca", "cert", "key")},
        verify=verify,
        prefix=prefix,
        durability=durability,
        timeout=url.timeout(10.0),
    )
