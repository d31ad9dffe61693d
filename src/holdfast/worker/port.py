"""The port of a supervisor's metrics: for a few at a time, for none for long, and only by a name of this machine."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ..core.hosts import is_address, named

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger("holdfast")
METRICS_CONNECTIONS = 16
"""Connections, each with a thread of its own."""
SILENCE_LIMIT = 5.0
"""Seconds that a connection may be silent, or not take what it asked for."""
CLOSE_SECONDS = 1.0
"""Seconds for a connection that was ended to make room."""


class Port(ThreadingMixIn, WSGIServer):
    """Serves a page. Where all connections are taken, the one that has kept its request back for longest has to go."""

    daemon_threads = True
    request_queue_size = METRICS_CONNECTIONS

    def __init__(self, host: str, port: int, page: WSGIApplication) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        self._free = threading.BoundedSemaphore(METRICS_CONNECTIONS)
        self._silent: dict[Any, None] = {}
        self._changing = threading.Lock()
        super().__init__((str(address[0]), int(address[1])), _Handler)
        self.set_app(_only_for({"localhost", socket.gethostname().lower(), host.lower()}, page))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand a connection to a thread, where there is one."""
        if not (self._free.acquire(blocking=False) or self._make_room()):
            self.shutdown_request(request)
            return
        with self._changing:
            self._silent[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._left(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """On the connection's own thread, until it has ended."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._left(request)

    def heard(self, request: Any) -> None:
        """The whole request has come: from now on it is answered."""
        with self._changing:
            self._silent.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Whoever called has gone, or was too slow: nothing to wake anybody for."""
        logger.debug("a connection to the metrics port failed: %r", sys.exception())

    def _make_room(self) -> bool:
        with self._changing:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            del self._silent[oldest]
        with suppress(OSError):  # it has just gone by itself
            oldest.shutdown(socket.SHUT_RDWR)
        return self._free.acquire(timeout=CLOSE_SECONDS)

    def _left(self, request: Any) -> None:
        self.heard(request)
        self._free.release()


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_LIMIT

    def parse_request(self) -> bool:
        """The rest of the request, after its first line."""
        try:
            return super().parse_request()
        finally:
            if isinstance(self.server, Port):
                self.server.heard(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as http.server names it
        """Nothing: somebody asks every few seconds."""


def _only_for(names: set[str], page: WSGIApplication) -> WSGIApplication:
    """The page, for whoever calls this machine by an address or one of these names (else: DNS rebinding)."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        name = named(environ.get("HTTP_HOST", ""))
        if name is not None and (name in names or is_address(name)):
            return page(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"unknown Host: use an IP address, localhost, this machine's name, or the host in --metrics-port\n"]

    return answer
