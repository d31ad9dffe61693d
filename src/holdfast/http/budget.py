"""How many bytes of request bodies a server holds at the same time: one budget for all, and a share of it per token.

1. A body takes its room before it is read, by its announced length, and gives it back when its request is answered.
2. One that finds no room waits a little, and is then refused (503), with nothing of it read.
3. A token that has used up its share waits for itself alone. Otherwise bodies are let in in the order they came.
4. A body larger than the share, or than the budget, is let in when there is nothing else in its way.
5. Small bodies are not counted: heartbeats and most jobs never wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from . import limits
from .problems import BUSY, Refused

SHARES = 4
"""One token may have this part of the budget: a quarter."""
WAIT = 5.0
"""Seconds that a body waits for room."""
BODIES_WAITING = 32
"""Bodies of one token that wait at the same time; beyond, they are refused at once."""


class _Waiting:
    def __init__(self, token: str, size: int) -> None:
        self.token = token
        self.size = size
        self.let_in = asyncio.get_running_loop().create_future()


class Budget:
    """Lets bodies in for as long as there is room. `total`: bytes, asked for anew each time."""

    def __init__(self, total: Callable[[], int]) -> None:
        self._total = total
        self._held: dict[str, int] = {}
        """Bytes by token."""
        self._sum = 0
        self._waiting: list[_Waiting] = []
        """In the order they came."""

    async def take(self, token: str, size: int) -> None:
        """Take room for a body of this token, or refuse it."""
        if sum(one.token == token for one in self._waiting) >= BODIES_WAITING:
            raise _no_room()
        waiting = _Waiting(token, size)
        self._waiting.append(waiting)
        self._let_in()
        try:
            async with asyncio.timeout(WAIT):
                await waiting.let_in
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._let_in()
            else:  # let in at the very moment when it gave up
                self.give_back(token, size)
            if isinstance(error, TimeoutError):
                raise _no_room() from None
            raise

    def give_back(self, token: str, size: int) -> None:
        """A body is gone."""
        self._sum -= size
        self._held[token] -= size
        if not self._held[token]:
            del self._held[token]
        self._let_in()

    def _let_in(self) -> None:
        total = self._total()
        for one in list(self._waiting):
            held = self._held.get(one.token, 0)
            if one.let_in.done() or (held and held + one.size > total // SHARES):
                continue  # it has given up this very moment, or waits for its own token
            if self._sum and self._sum + one.size > total:
                return  # and nobody overtakes it
            self._waiting.remove(one)
            self._sum += one.size
            self._held[one.token] = held + one.size
            one.let_in.set_result(None)


def _no_room() -> Refused:
    detail = "this server holds as many bytes of requests as it may, or as one token may; send this again"
    return Refused(BUSY, detail, retry_safe=True, retry_after=limits.RETRY_AFTER)
