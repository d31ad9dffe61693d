"""Celery: one worker process with a pool of threads. Acknowledged early, as by default: a crash loses the job."""

from __future__ import annotations

from celery import Celery, chord

from .redis_scaffold import URL, Side, arrived, ran

app = Celery("bench", broker=URL, backend=URL)
app.conf.worker_redirect_stdouts = False  # we talk through them


@app.task(name="nothing")
def nothing() -> int:
    ran()
    return 1


@app.task(name="stamp")
def stamp(sent: int) -> None:
    arrived(sent)


@app.task(name="joined")
def joined(results: list[int]) -> int:
    ran()
    return sum(results)


def flow() -> None:
    """Two jobs, and a third that takes their results."""
    chord([nothing.s(), nothing.s()])(joined.s())


def work() -> None:
    app.worker_main(["-q", "worker", "--pool=threads", "--concurrency=8", "--loglevel=ERROR", "--without-mingle"])


if __name__ == "__main__":
    Side(nothing.delay, stamp.delay, work, flow=flow).serve()
