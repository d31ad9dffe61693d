"""Functions that no app registered, for jobs that name them as `module:qualname`."""

from __future__ import annotations

import os
from functools import partial
from os import system

from holdfast import Context

ran: list[str] = []

imported_name = system
"""Reachable through this module, but not defined here."""

prefilled = partial(os.system)

not_callable = {"a": 1}


def double(n: int) -> int:
    return 2 * n


async def double_later(n: int) -> int:
    return 2 * n


def who(context: Context) -> str:
    return context.job.id


class Shelf:
    @staticmethod
    def count(n: int) -> int:
        return n + 1

    @classmethod
    def name(cls) -> str:
        return cls.__name__

    def put(self) -> str:
        return "put"


shelf = Shelf()
