"""`holdfast bench`: measure the throughput of a store from this machine, in about 30 seconds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .connect import make_app, parts_of, run

if TYPE_CHECKING:
    from ..app import Holdfast

QUEUE = "holdfast-bench"


def bench(
    jobs: Annotated[int, typer.Option(min=100, max=1_000_000, help="Number of jobs.")] = 10_000,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure jobs per second: enqueue sequentially, with 100 concurrent callers and in bulk, then run no-op jobs.

    Uses the queue holdfast-bench and deletes its succeeded jobs afterwards.
    """
    rates = run(make_app(url), lambda app: _measure(app, jobs), create=True)
    from .printing import document, table

    if as_json:
        document(rates)
    else:
        rows = [(name, f"{rate:,.0f}") for name, rate in rates.items()]
        table("Jobs per second, one process", ("Operation", "Jobs/s"), rows)


async def _measure(app: Holdfast, count: int) -> dict[str, float]:
    from ..worker import Worker

    parts = parts_of(app)
    noop, clock = parts.registry.tasks["noop"].using(queue=QUEUE), parts.runtime.clock
    rates: dict[str, float] = {}

    async def one_by_one(number: int) -> None:
        for _ in range(number):
            await noop.enqueue()

    async def timed(name: str, number: int, *work: object) -> None:
        began = clock.monotonic()
        await asyncio.gather(*work)  # type: ignore[arg-type]
        rates[name] = number / (clock.monotonic() - began)

    few = count // 10
    await timed("enqueue, one at a time", few, one_by_one(few))
    await timed("enqueue, 100 callers", count // 100 * 100, *(one_by_one(count // 100) for _ in range(100)))
    await timed("enqueue, in bulk", count, app.enqueue_many([noop.call() for _ in range(count)]))
    waiting = few + count // 100 * 100 + count
    await timed("run no-op jobs", waiting, Worker(app, [QUEUE], 100, until_idle=True).run())
    await app.bulk.purge(state=["succeeded"], queue=QUEUE)
    return rates
