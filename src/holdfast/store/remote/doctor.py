"""Checks of the connection between a client and its server: reachability, version, token, latency."""

from __future__ import annotations

from ...core.clock import Clock
from ...version import __version__
from ..protocol import Finding
from ..rpc import HELLO, NOW, WARNINGS
from .address import Address
from .link import Link

SLOW = 0.1
"""Seconds of a round trip from which it is reported as slow."""
PINGS = 5
"""Round trips, of which the median is reported."""


async def examine(link: Link, address: Address, clock: Clock) -> list[Finding]:
    """Run all checks; returns the findings, the most important first."""
    hello = await link.call(HELLO)
    same = hello.version == __version__
    findings = [
        Finding(True, f"{address} answers; it uses a {hello.store} store"),
        Finding(
            same,
            f"the server is Holdfast {hello.version}, this client is {__version__}",
            "install the same version of Holdfast on both",
        ),
        _sweeping(hello.features),
        _token(hello.roles, address),
        *await link.call(WARNINGS),
    ]
    took: list[float] = []
    for _ in range(PINGS):
        before = clock.monotonic()
        await link.call(NOW)
        took.append(clock.monotonic() - before)
    typical = sorted(took)[PINGS // 2]
    near = "every claim and settlement takes at least this long: run the workers closer to the server"
    return [*findings, Finding(typical < SLOW, f"a call to the server takes {typical * 1000:.1f} ms", near)]


def _sweeping(features: tuple[str, ...]) -> Finding:
    if "sweeps" in features:
        return Finding(True, "the server recovers jobs of expired leases")
    return Finding(True, "the server does not recover jobs of expired leases: workers do")


def _token(roles: tuple[str, ...], address: Address) -> Finding:
    if address.token() is None:
        return Finding(True, "the server accepts this machine without a token")
    if not address.private:
        return Finding(False, "the token is sent unencrypted", "use an https:// URL")
    return Finding(True, f"the token allows: {', '.join(roles)}")
