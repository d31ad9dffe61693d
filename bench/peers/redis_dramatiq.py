"""Dramatiq: its worker with threads, as its command starts it by default (8 of them)."""

from __future__ import annotations

import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.worker import Worker

from .redis_scaffold import URL, Side, arrived, ran

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def nothing() -> None:
    ran()


@dramatiq.actor
def stamp(sent: int) -> None:
    arrived(sent)


def work() -> None:
    Worker(broker, worker_threads=8).start()
    threading.Event().wait()


if __name__ == "__main__":
    Side(nothing.send, stamp.send, work).serve()
