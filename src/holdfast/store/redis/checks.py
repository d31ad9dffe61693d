"""What a server must be, and what it can promise, read when a store is opened."""

from __future__ import annotations

import logging

from ...errors import ConfigError, HoldfastError, StoreUnavailable
from .address import Address
from .link import Link

log = logging.getLogger("holdfast")
OLDEST = (7, 0)


async def check(link: Link) -> None:
    """Refuse a server that could lose jobs silently; warn of one that may lose them in a crash."""
    try:
        facts = _facts(await link.command("INFO"))
    except ConfigError as error:
        log.info("the server does not show INFO, so its durability is unknown: %s", error)
        facts = dict[str, str]()
    address = link.address
    _version(facts, address)
    _role(facts, address)
    _eviction(facts, address)
    await _durability(facts, link)


def _facts(info: bytes) -> dict[str, str]:
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def version_of(facts: dict[str, str]) -> tuple[int, ...] | None:
    """Redis's version; Valkey tells the one that it is compatible with."""
    parts = facts.get("redis_version", "").split(".")[:2]
    return tuple(int(part) for part in parts) if len(parts) == 2 and all(p.isdecimal() for p in parts) else None


def _version(facts: dict[str, str], address: Address) -> None:
    version = version_of(facts)
    if version is not None and version < OLDEST:
        raise ConfigError(f"{address} is Redis {facts['redis_version']}; Holdfast needs 7.0 or newer, or Valkey")


def _role(facts: dict[str, str], address: Address) -> None:
    if facts.get("role") == "slave":
        raise StoreUnavailable(f"{address} is a read-only replica; name the primary, or use redis+sentinel://")


def _eviction(facts: dict[str, str], address: Address) -> None:
    """Only allkeys policies touch our keys: none of them has an expiry that a volatile policy could use."""
    policy = facts.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        raise ConfigError(
            f"{address} may throw jobs away when its memory is full (maxmemory-policy {policy});"
            " set it to keep them: CONFIG SET maxmemory-policy noeviction (and in its configuration file)"
        )


async def _durability(facts: dict[str, str], link: Link) -> None:
    address = link.address
    persistent = facts.get("aof_enabled", "1") == "1"
    if address.durability == "fsync":
        if not persistent:
            raise ConfigError(f"{address}: durability=fsync needs an append-only file: CONFIG SET appendonly yes")
        if not await _knows(link, "WAITAOF"):
            raise ConfigError(f"{address}: durability=fsync needs WAITAOF, which came with Redis 7.2")
    elif address.durability == "replicated":
        if facts.get("connected_slaves") == "0":
            raise StoreUnavailable(f"{address}: durability=replicated, and no replica is connected")
    elif address.durability == "server" and not persistent:
        log.warning(
            "%s keeps no append-only file: a crash loses every job since its last snapshot. CONFIG SET appendonly yes"
            " keeps them; ?durability=none in the URL says that this is meant",
            address,
        )


async def _knows(link: Link, command: str) -> bool:
    try:
        answer = await link.command("COMMAND", "INFO", command)
    except HoldfastError:
        return True  # it does not say: the first write will
    return bool(answer) and answer[0] is not None
