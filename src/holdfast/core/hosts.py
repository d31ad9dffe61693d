"""Parses Host headers. A page that rebinds its own name to this server still sends its own name there."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def named(host: str) -> str | None:
    """The name or address in a Host header; None if it has neither."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and "@" not in host else None


def is_address(name: str) -> bool:
    """Whether it is an IP address, which DNS rebinding cannot redirect."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def subnet(address: str) -> str:
    """The key by which addresses are counted: an IPv4 address itself, or the /64 of an IPv6 address."""
    if not is_address(address):
        return address
    parsed = ipaddress.ip_address(address)
    if parsed.version == 4:
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed.packed, 64), strict=False))
