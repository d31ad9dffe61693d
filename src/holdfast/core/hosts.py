"""Names in Host headers: what a server is called by. A page that points its own name here still says its own name."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def named(host: str) -> str | None:
    """The name or address in a Host header; None where it is neither."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and "@" not in host else None


def is_address(name: str) -> bool:
    """Whether it is an IP address, which nobody can point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def subnet(address: str) -> str:
    """What stands for an address where addresses are counted: itself; of version 6 its /64, which one customer has."""
    if not is_address(address):
        return address
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed.packed, 64), strict=False))
