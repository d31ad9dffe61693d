"""Closes sockets whose event loop has ended and can no longer close them."""

from __future__ import annotations

import asyncio
from typing import Any


def release(transport: asyncio.BaseTransport) -> None:
    """Close the socket of a transport whose loop has ended, without a message to the peer or a ResourceWarning."""
    inner: Any = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None) or transport
    sock, loop = getattr(inner, "_sock", None), getattr(inner, "_loop", None)
    if sock is None or loop is None:
        return  # of another kind of loop, which closes its sockets as it ends
    if not loop.is_closed():  # it may run again
        inner.abort()
    else:
        inner._sock = None  # noqa: SLF001  # else the transport warns when it is collected
    sock.close()
