"""`holdfast serve`: the HTTP service as a process.

1. Binds first, so that the actual address is checked.
2. Refuses to start on a non-loopback address without a token.
3. On SIGTERM, Ctrl-C or SIGHUP: accepts no more connections, ends streams, finishes accepted requests, closes the app.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, cast

import uvicorn

from ..core.errors import ConfigError
from . import limits
from .auth import is_loopback
from .connection_limits import ConnectionLimits, raise_file_limit
from .protocol import Connection

if TYPE_CHECKING:
    from .service import Service


def run(
    service: Service,
    host: str,
    port: int,
    started: Callable[[str], object],
    grace: float,
    *,
    proxies: Sequence[str] = (),
) -> None:
    """Serve until a signal; `started` is called with the URL. `proxies`: those whose X-Forwarded-For is trusted."""
    raise_file_limit()
    with contextlib.closing(bind(host, port)) as bound:
        server = Server(service, started, grace, proxies)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve([bound]))


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to this address, not yet listening."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ConfigError(f"cannot serve on {host!r}, port {port}: {error}; choose another --host or --port") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        bound.close()
        raise ConfigError(f"cannot serve on {host!r}, port {port}: {error}; choose another --host or --port") from None
    return bound


async def check(service: Service, address: str) -> None:
    """Raise ConfigError if the address is not loopback and there is no token."""
    auth = service.auth
    if service.parts.url.startswith(("http://", "https://")) and not auth.keyring.seen:
        raise ConfigError(
            "the server was not started: it cannot read the tokens of a store behind another server. Set "
            "HOLDFAST_TOKEN, or serve the store directly"
        )
    if is_loopback(address):
        auth.open_without_token = True
        return
    if not auth.keyring.seen:
        await auth.keyring.refresh()
    if not auth.keyring.seen:
        raise ConfigError(
            f"the server was not started: other machines can reach {address}, and there is no token. Create one with "
            "`holdfast token create --role …`, or set HOLDFAST_TOKEN, or serve on 127.0.0.1"
        )


class Server(uvicorn.Server):
    """uvicorn's server with Holdfast's connections, start and stop."""

    def __init__(
        self, service: Service, started: Callable[[str], object], grace: float, proxies: Sequence[str] = ()
    ) -> None:
        config = uvicorn.Config(
            service,
            http=cast("type[Connection]", functools.partial(Connection, ConnectionLimits(proxies))),
            loop="auto" if service.parts.runtime.current_settings().uvloop else "asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.KEEP_ALIVE),
            timeout_graceful_shutdown=max(1, int(grace)),
        )
        super().__init__(config)
        self._service = service
        self._on_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        address, port = sockets[0].getsockname()[:2]
        await check(self._service, address)
        await super().startup(sockets)
        self._on_started(f"http://{f'[{address}]' if ':' in address else address}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """As in uvicorn, but the signal is not raised again: a stop by signal is not a failure."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
