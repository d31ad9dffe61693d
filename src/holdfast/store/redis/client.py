"""Derives the store URL from a redis-py client; the client's connections are not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from ...core.errors import ConfigError

_NOT_TAKEN = ("credential_provider", "redis_connect_func", "ssl_ca_data", "ssl_ca_path", "ssl_password")
"""Authentication and TLS settings that a URL cannot express."""


def url_of(client: Any, **options: str) -> str:
    """The URL of the one server, the Unix socket, or the primary named by sentinels, that the client connects to.

    `options` are URL options, such as `prefix` and `durability`.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise _refused(client, f"pass its URL instead: {_cluster_url(client)}")
    settings: Mapping[str, Any] = pool.connection_kwargs
    for name in _NOT_TAKEN:
        if settings.get(name):
            raise _refused(
                client, f"Holdfast opens its own connections and does not support {name}; pass a URL instead"
            )
    kinds = {parent.__name__ for parent in pool.connection_class.__mro__}
    scheme, query = "redis", {}
    if "SSLConnection" in kinds:
        scheme, query = "rediss", _trust(settings)
    if "UnixDomainSocketConnection" in kinds:
        scheme, place = "unix", quote(settings["path"])
    elif hasattr(pool, "sentinel_manager"):
        if not pool.is_master:
            raise _refused(client, "the client reads from a replica; use a client of Sentinel.master_for()")
        sentinels = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
        scheme, place = f"{scheme}+sentinel", f"{_hosts(sentinels)}/{quote(pool.service_name, safe='')}"
        query |= {f"sentinel_{name}": sentinels[0].get(name) for name in ("username", "password")}
    else:
        place = _hosts([{"host": "localhost", "port": 6379, **settings}])
    query = {"db": settings.get("db"), **query, **options}
    said = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    return f"{scheme}://{_credentials(settings)}{place}{f'?{said}' if said else ''}"


def _credentials(settings: Mapping[str, Any]) -> str:
    password = settings.get("password")
    if not password:
        return ""
    return f"{quote(settings.get('username') or '', safe='')}:{quote(password, safe='')}@"


def _hosts(places: Iterable[Mapping[str, Any]]) -> str:
    hosts = [(f"[{one['host']}]" if ":" in one["host"] else one["host"], one["port"]) for one in places]
    return ",".join(f"{host}:{port}" for host, port in hosts)


def _trust(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The TLS options of the client; redis-py names the verification levels as `ssl` does, or as text."""
    wanted = settings.get("ssl_cert_reqs", "required")
    verifies = str(getattr(wanted, "name", wanted)).lower().removeprefix("cert_") == "required"
    files = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
    return {option: settings.get(name) for option, name in files.items()} | ({} if verifies else {"verify": "no"})


def _cluster_url(client: Any) -> str:
    manager = getattr(client, "nodes_manager", None)
    nodes = manager.startup_nodes.values() if manager is not None else ()
    return "redis+cluster://" + (",".join(f"{node.host}:{node.port}" for node in nodes) or "host:port")


def _refused(client: Any, why: str) -> ConfigError:
    return ConfigError(f"a {type(client).__name__} of {type(client).__module__} cannot be used as a store: {why}")
