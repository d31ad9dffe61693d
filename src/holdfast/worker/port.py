"""The metrics port of a supervisor: limits connections and idle time, and accepts only Host names of this machine."""

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
"""Connections at one time; each has its own thread."""
SILENCE_LIMIT = 5.0
"""Seconds without progress after which a connection is closed."""
CLOSE_SECONDS = 1.0
"""Seconds to wait until a connection that was closed to free capacity has ended."""


class Port(ThreadingMixIn, WSGIServer):
    """Serves one page. At the connection limit, the connection that has waited longest for its request is closed."""

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
        """Start a thread for a connection, or refuse it at the limit."""
        if not (self._free.acquire(blocking=False) or self._free_capacity()):
            self.shutdown_request(request)
            return
        with self._changing:
            self._silent[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._release(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection on its own thread until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._release(request)

    def received(self, request: Any) -> None:
        """The request was received completely: the connection is no longer closed for capacity."""
        with self._changing:
            self._silent.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """The client disconnected or was too slow: log at debug level only."""
        logger.debug("a request to the metrics port was not answered: %r", sys.exception())

    def _free_capacity(self) -> bool:
        with self._changing:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            del self._silent[oldest]
        with suppress(OSError):  # it has just ended
            oldest.shutdown(socket.SHUT_RDWR)
        return self._free.acquire(timeout=CLOSE_SECONDS)

    def _release(self, request: Any) -> None:
        self.received(request)
        self._free.release()


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_LIMIT

    def parse_request(self) -> bool:
        try:
            return super().parse_request()
        finally:
            if isinstance(self.server, Port):
                self.server.received(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as http.server names it
        """Log nothing: scrapes come every few seconds."""


def _only_for(names: set[str], page: WSGIApplication) -> WSGIApplication:
    """The page, only for requests whose Host is an address or one of these names (against DNS rebinding)."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        name = named(environ.get("HTTP_HOST", ""))
        if name is not None and (name in names or is_address(name)):
            return page(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"unknown Host: use an IP address, localhost, this machine's name, or the host in --metrics-port\n"]

    return answer
