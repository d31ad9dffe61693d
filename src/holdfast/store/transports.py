"""Sockets of a loop that has ended, which cannot close them any more."""

from __future__ import annotations

import asyncio
from typing import Any


def release(transport: asyncio.BaseTransport) -> None:
    """Close the socket of a transport whose loop has ended, without a word to its peer or a complaint."""
    inner: Any = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None) or transport
    sock, loop = getattr(inner, "_sock", None), getattr(inner, "_loop", None)
    if sock is None or loop is None:
        return  # of another kind of loop, which closes its sockets as it ends
    if not loop.is_closed():  # it may run again: let it know
        inner.abort()
    else:
        inner._sock = None  # noqa: SLF001  # else the transport complains when it is collected
    sock.close()
