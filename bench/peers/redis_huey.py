"""Huey on Redis: its consumer with four threads. A job is removed when it is taken: a crash loses it."""

from __future__ import annotations

import logging
import threading

from huey import RedisHuey

from .redis_scaffold import URL, Side, arrived, ran

huey = RedisHuey(url=URL)


@huey.task()
def nothing() -> None:
    ran()


@huey.task()
def stamp(sent: int) -> None:
    arrived(sent)


@huey.task()
def take(text: str) -> None: ...


def work() -> None:
    huey.create_consumer(workers=4, periodic=False).start()
    threading.Event().wait()


if __name__ == "__main__":
    logging.disable(logging.INFO)
    Side(nothing, stamp, work, take=take).serve()
