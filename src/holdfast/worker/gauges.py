"""A supervisor's metrics: one port for all its workers, which send it their counts every second."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, cast

from ..core.errors import ConfigError
from ..observe.metrics import PREFIX, Depths, Metrics, Seen

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import WSGIApplication

    from ..parts import Parts
    from .port import Port

logger = logging.getLogger("holdfast")
OPEN_AGAIN = 5.0
"""Seconds between two attempts to open a port that is in use."""


class Gauges:
    """Serves the metrics page from its own threads (`port.py`); the event loop reads queue depths from the store."""

    def __init__(self, address: str, active: Callable[[], int], prefix: str = PREFIX) -> None:
        self.metrics = Metrics(active, prefix=prefix)
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._loop = asyncio.get_running_loop()
        self._depths: Depths | None = None
        self._server: Port | None = None
        self._opening: asyncio.Task[None] | None = None

    def watch(self, parts: Parts) -> None:
        """The workers' store is known: show its queue depths, and count the supervisor's own operations."""
        self.metrics.listen(parts.events)
        self._depths = Depths(parts.inspection.queues, parts.runtime.clock)

    async def open(self, *, patient: bool) -> None:
        """Serve; with `patient`, a port that is in use is tried again until it is free."""
        try:
            self._serve()
        except OSError as error:
            if not patient:
                raise ConfigError(
                    f"metrics cannot be served on {self._host}:{self._port}: {error}; choose another port or stop the"
                    " program that uses it"
                ) from None
            self._opening = self._loop.create_task(self._try_again())

    async def _try_again(self) -> None:
        while self._server is None:
            await asyncio.sleep(OPEN_AGAIN)
            try:
                self._serve()
            except OSError as error:
                logger.info("cannot serve metrics on %s:%d yet, will try again: %s", self._host, self._port, error)

    def _serve(self) -> None:
        from prometheus_client import make_wsgi_app  # type: ignore[reportUnknownVariableType]

        from .port import Port

        page = cast("WSGIApplication", make_wsgi_app(self.metrics.registry(self._look)))
        self._server = Port(self._host.strip("[]"), self._port, page)
        threading.Thread(target=self._server.serve_forever, name="holdfast-metrics", daemon=True).start()

    def _look(self) -> Seen | None:
        """Called on the serving thread."""
        return None if self._depths is None else self._depths.read_on(self._loop)

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()
