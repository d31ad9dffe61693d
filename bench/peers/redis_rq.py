"""RQ: its worker that does not fork for each job, the faster of the two."""

from __future__ import annotations

import logging
from typing import Any

from rq import Queue, SimpleWorker

from redis import Redis

from . import redis_scaffold
from .redis_scaffold import URL, Side

connection = Redis.from_url(URL)
queue = Queue(connection=connection)


def nothing() -> int:
    redis_scaffold.ran()
    return 1


def stamp(sent: int) -> None:
    redis_scaffold.arrived(sent)


NOTHING, STAMP = "bench.peers.redis_rq.nothing", "bench.peers.redis_rq.stamp"


def bulk(count: int) -> Any:
    return queue.enqueue_many([Queue.prepare_data(NOTHING) for _ in range(count)])


def flow() -> None:
    """Two jobs, and a third that begins when both have ended."""
    queue.enqueue(NOTHING, depends_on=[queue.enqueue(NOTHING), queue.enqueue(NOTHING)])


def work() -> None:
    SimpleWorker([queue], connection=connection).work(logging_level="ERROR")


if __name__ == "__main__":
    logging.disable(logging.INFO)
    enqueue, stamped = lambda: queue.enqueue(NOTHING), lambda sent: queue.enqueue(STAMP, sent)
    Side(enqueue, stamped, work, bulk=bulk, flow=flow).serve()
