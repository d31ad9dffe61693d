"""Checks of a Redis server's version, role and durability: at open, while the store is open, and by the doctor."""

from __future__ import annotations

import logging

import msgspec

from ...core.errors import ConfigError, HoldfastError, StoreRefused, StoreUnavailable
from ..protocol import Finding
from .address import Address
from .link import Link

log = logging.getLogger("holdfast")
OLDEST = (7, 0)
Facts = dict[str, str]


class Check(msgspec.Struct, frozen=True):
    """One check of a server, and the error that opening the store raises if it fails."""

    finding: Finding
    refusal: type[HoldfastError] | None = None


async def check(link: Link) -> None:
    """Refuse a server that could lose jobs silently."""
    facts = await _facts(link)
    if facts is None:
        log.info(
            "%s: the user of the URL may not run INFO, so its settings are not checked; allow INFO with ACL SETUSER",
            link.address,
        )
        return
    for one in await _checks(facts, link):
        if one.refusal is not None and not one.finding.fine:
            raise one.refusal(f"{link.address}: {one.finding.what}; {one.finding.advice}")


async def warnings(link: Link) -> list[Finding]:
    """The failed checks: settings of the server that may lose jobs."""
    facts = await _facts(link)
    checks = [] if facts is None else await _checks(facts, link)
    return [one.finding for one in checks if not one.finding.fine]


async def examine(link: Link) -> list[Finding]:
    """All checks, passed or failed."""
    facts = await _facts(link)
    if facts is None:
        unknown = f"{link.address}: INFO is not permitted, so memory and durability settings are unknown"
        return [Finding(False, unknown, "allow the user of the URL to run INFO (ACL SETUSER)")]
    return [one.finding for one in await _checks(facts, link)]


async def _facts(link: Link) -> Facts | None:
    """The fields of INFO; None if the user of the URL may not run it."""
    try:
        info: bytes = await link.command("INFO")
    except ConfigError:
        return None
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


async def _checks(facts: Facts, link: Link) -> list[Check]:
    checks = [_version(facts), _role(facts, link.address), _eviction(facts), _append_only_file(facts, link.address)]
    if link.address.durability == "fsync":
        advice = "durability=fsync needs WAITAOF: use Redis 7.2 or newer, or Valkey"
        known = await _knows(link, "WAITAOF")
        said = "the server has WAITAOF" if known else "the server has no WAITAOF"
        checks.append(Check(Finding(known, said, advice), ConfigError))
    elif link.address.durability == "replicated":
        replicas = facts.get("connected_slaves", "unknown")
        some = replicas != "0"
        said = f"replicas connected: {replicas}" if some else "no replica is connected"
        advice = "durability=replicated needs a replica: connect one, or use another ?durability= in the URL"
        checks.append(Check(Finding(some, said, advice), StoreUnavailable))
    return checks


def version_of(facts: Facts) -> tuple[int, ...] | None:
    """The Redis version; Valkey reports the one that it is compatible with."""
    parts = facts.get("redis_version", "").split(".")[:2]
    return tuple(int(part) for part in parts) if len(parts) == 2 and all(p.isdecimal() for p in parts) else None


def _version(facts: Facts) -> Check:
    version = version_of(facts)
    name = f"Valkey {facts['valkey_version']}" if "valkey_version" in facts else f"Redis {facts.get('redis_version')}"
    fine = version is None or version >= OLDEST
    return Check(Finding(fine, f"the server is {name}", "Holdfast needs Redis 7.0 or newer, or Valkey"), ConfigError)


def _role(facts: Facts, address: Address) -> Check:
    replica = facts.get("role") == "slave"
    said = "the server is a read-only replica" if replica else "the server is a primary"
    # The server that sentinels name may be a replica during a failover.
    refusal = StoreRefused if address.master is None else StoreUnavailable
    return Check(Finding(not replica, said, "use the primary's address, or redis+sentinel://"), refusal)


def _eviction(facts: Facts) -> Check:
    """Only allkeys policies evict our keys: none of them has an expiry, as volatile policies require."""
    policy = facts.get("maxmemory_policy", "unknown")
    advice = (
        "the server may evict jobs when its memory is full. Run CONFIG SET maxmemory-policy noeviction, and set it in"
        " the configuration file"
    )
    return Check(Finding(not policy.startswith("allkeys"), f"maxmemory-policy is {policy}", advice), ConfigError)


def _append_only_file(facts: Facts, address: Address) -> Check:
    kept = facts.get("aof_enabled", "1") == "1"
    if kept:
        status = facts.get("aof_last_write_status", "ok")
        said = f"the append-only file is on; status of its last write: {status}"
        return Check(
            Finding(
                status == "ok", said, "the server cannot write to its disk: check the disk and the log of the server"
            )
        )
    said = "the append-only file is off"
    if address.durability == "fsync":
        advice = "durability=fsync needs the append-only file: run CONFIG SET appendonly yes"
        return Check(Finding(False, said, advice), ConfigError)
    if address.durability != "server":
        return Check(Finding(True, f"{said}, and durability={address.durability} does not need it"))
    advice = (
        "a crash loses every job since the server's last snapshot. Run CONFIG SET appendonly yes, and set it in the"
        " configuration file; or accept the loss with ?durability=none in the URL"
    )
    return Check(Finding(False, said, advice))


async def _knows(link: Link, command: str) -> bool:
    try:
        answer = await link.command("COMMAND", "INFO", command)
    except HoldfastError:
        return True  # unknown: the first write will fail if it is missing
    return bool(answer) and answer[0] is not None
