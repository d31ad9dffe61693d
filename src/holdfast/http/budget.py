"""Memory budget for request bodies: a total in bytes, and a maximum share per token.

1. A body reserves its announced length before it is read, and releases it when its request is answered.
2. Without free capacity a body waits for `WAIT` seconds, and is then refused (503) without being read.
3. A token over its share waits only for its own bodies. Otherwise bodies are admitted in order of arrival.
4. A body larger than the share or the budget is admitted when nothing else is in use.
5. Bodies up to `limits.SMALL` bytes are not counted: heartbeats and most jobs never wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from . import limits
from .problems import BUSY, Refused

SHARES = 4
"""One token may use 1/SHARES of the budget."""
WAIT = 5.0
"""Seconds that a body waits for free capacity."""
BODIES_WAITING = 32
"""Maximum waiting bodies per token; further ones are refused at once."""


class _Waiting:
    def __init__(self, token: str, size: int) -> None:
        self.token = token
        self.size = size
        self.admitted = asyncio.get_running_loop().create_future()


class Budget:
    """Admits bodies while there is capacity. `total`: returns the budget in bytes, called at every admission."""

    def __init__(self, total: Callable[[], int]) -> None:
        self._total = total
        self._held: dict[str, int] = {}
        """Bytes by token."""
        self._sum = 0
        self._waiting: list[_Waiting] = []
        """In order of arrival."""

    async def take(self, token: str, size: int) -> None:
        """Reserve `size` bytes for a body of this token; Refused (503) after `WAIT` seconds."""
        if sum(one.token == token for one in self._waiting) >= BODIES_WAITING:
            raise _no_capacity()
        waiting = _Waiting(token, size)
        self._waiting.append(waiting)
        self._admit()
        try:
            async with asyncio.timeout(WAIT):
                await waiting.admitted
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit()
            else:  # admitted at the moment of the timeout
                self.release(token, size)
            if isinstance(error, TimeoutError):
                raise _no_capacity() from None
            raise

    def release(self, token: str, size: int) -> None:
        self._sum -= size
        self._held[token] -= size
        if not self._held[token]:
            del self._held[token]
        self._admit()

    def _admit(self) -> None:
        total = self._total()
        for one in list(self._waiting):
            held = self._held.get(one.token, 0)
            if one.admitted.done() or (held and held + one.size > total // SHARES):
                continue  # timed out just now, or waits for its own token
            if self._sum and self._sum + one.size > total:
                return  # keeps the order of arrival
            self._waiting.remove(one)
            self._sum += one.size
            self._held[one.token] = held + one.size
            one.admitted.set_result(None)


def _no_capacity() -> Refused:
    detail = "the server's memory for request bodies, or this token's share, is in use; nothing was done, try again"
    return Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER)
