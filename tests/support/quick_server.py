"""uvicorn without its waits of a tenth of a second: hundreds of tests start and stop a server."""

from __future__ import annotations

import asyncio
import socket

import uvicorn

STEP = 0.002
"""Seconds between two looks for connections and tasks that have not ended yet."""


class QuickServer(uvicorn.Server):
    """Notices at once that it is to exit, and ends once its connections and tasks have ended."""

    _exits: asyncio.Event | None = None
    _exit_asked = False

    @property
    def should_exit(self) -> bool:
        return self._exit_asked

    @should_exit.setter
    def should_exit(self, exit_asked: bool) -> None:
        self._exit_asked = exit_asked
        if exit_asked and self._exits is not None:
            self._exits.set()

    async def main_loop(self) -> None:
        self._exits = asyncio.Event()
        if not await self.on_tick(0):
            await self._exits.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for bound in sockets or []:
            bound.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110  # uvicorn sets no event
                    await asyncio.sleep(STEP)
        except TimeoutError:
            for task in state.tasks:
                task.cancel()
        await self.lifespan.shutdown()
