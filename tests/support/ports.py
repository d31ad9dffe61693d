"""Free ports on loopback, below those that systems give to outgoing connections: none is taken by accident."""

from __future__ import annotations

import itertools
import os
import socket
import urllib.error
import urllib.request

FIRST, COUNT = 10_000, 12_000
BUS = 10_000
"""A node of a cluster listens so far above its port, too."""
_turns = itertools.count(os.getpid() * 101)
"""Processes that run tests at the same time begin at different places."""


def free_port() -> int:
    """A port that nobody uses, nor the one of its bus."""
    while True:
        port = FIRST + next(_turns) % COUNT
        if _is_free(port) and _is_free(port + BUS):
            return port


def free_ports(count: int) -> list[int]:
    """As many, all different."""
    return [free_port() for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(url: str) -> bool:
    """Whether an HTTP server answers there, whatever it says."""
    try:
        urllib.request.urlopen(url, timeout=2)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
