"""Where a store is: from a URL to servers, credentials and options."""

from __future__ import annotations

import ssl
from urllib.parse import SplitResult, unquote

import msgspec

from ...errors import ConfigError
from ...settings import redact

OPTIONS = (
    "prefix", "durability", "timeout", "db", "ca", "cert", "key", "verify", "sentinel_username", "sentinel_password",
)  # fmt: skip
DURABILITIES = ("server", "none", "fsync", "replicated")
DEFAULT_PREFIX = "holdfast"

Node = tuple[str, int]
"""(host, port)"""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A store's place. Frozen, so that siblings share it."""

    nodes: tuple[Node, ...] = ()
    path: str | None = None
    """Of a Unix socket."""
    master: str | None = None
    """The name that sentinels know the primary by; `nodes` are sentinels then."""
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
    """Seconds that a call may take."""

    def __str__(self) -> str:
        place = self.path or ",".join(f"{host}:{port}" for host, port in self.nodes)
        return f"{self.master} of {place}" if self.master else f"{place}/{self.db}" if self.db else place

    def tls_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse(url: str, parts: SplitResult, options: dict[str, str]) -> Address:
    """The address that a URL names; `parts` and `options` are the URL taken apart."""

    def wrong(why: str) -> ConfigError:
        return ConfigError(f"{redact(url)}: {why}")

    secure, _, kind = parts.scheme.partition("+")
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, colon, password = credentials.partition(":")
    path = unquote(parts.path)
    master, socket, db = None, None, options.get("db", "")
    if parts.scheme == "unix":
        if not path.strip("/"):
            raise wrong("name the socket: unix:///run/redis.sock")
        socket = path
    elif kind == "sentinel":
        master, _, in_path = path.strip("/").partition("/")
        if not master:
            raise wrong("name the primary that the sentinels watch: redis+sentinel://host:26379/mymaster")
        db = in_path or db
    else:
        db = path.strip("/") or db
    durability = options.get("durability", "server")
    if durability not in DURABILITIES:
        raise wrong(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    verify = options.get("verify", "yes")
    if verify not in ("yes", "no"):
        raise wrong(f"verify must be yes or no, not {verify!r}")
    prefix = options.get("prefix", DEFAULT_PREFIX)
    if not prefix or "{" in prefix or "}" in prefix:
        raise wrong(f"a prefix has at least one character and no braces, not {prefix!r}")
    if db and not db.isdecimal():
        raise wrong(f"the database is a number, not {db!r}")
    if kind == "cluster" and db not in ("", "0"):
        raise wrong("a cluster has database 0 only; use ?prefix= to keep stores apart")
    try:
        timeout = float(options.get("timeout", "10"))
        nodes = () if socket else tuple(_node(host, 26379 if kind == "sentinel" else 6379) for host in hosts.split(","))
    except ValueError:
        raise wrong("a host is host:port, and timeout a number of seconds") from None
    if not 0 < timeout < 1e6:
        raise wrong(f"timeout is a number of seconds above 0, not {timeout:g}")
    return Address(
        nodes=nodes,
        path=socket,
        master=master,
        db=int(db or 0),
        username=unquote(username) or None if colon else None,
        password=unquote(password if colon else username) or None,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        tls=secure == "rediss",
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
        verify=verify == "yes",
        prefix=prefix,
        durability=durability,
        timeout=timeout,
    )


def _node(text: str, port: int) -> Node:
    if text.startswith("["):  # [::1]:6379
        host, _, rest = text[1:].partition("]")
        return host, int(rest[1:] or port)
    host, _, given = text.partition(":")
    return unquote(host) or "localhost", int(given or port)
