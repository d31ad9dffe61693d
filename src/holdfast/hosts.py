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
