"""One side of a pair: enqueue and run jobs of one kind, and print the CPU microseconds per job (or flow) of both.

    python bench/pairs_side.py KIND URL COUNT

It uses only calls that older commits have too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys

from holdfast import Flow, Holdfast, Worker

BULK = 1000


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


async def main(kind: str, url: str, count: int) -> None:
    app = Holdfast(url)

    @app.task
    async def quick(*_: object) -> None: ...

    @app.task
    def plain(*_: object) -> None: ...

    async def work(concurrency: int = 100) -> None:
        await Worker(app, until_idle=True, concurrency=concurrency).run()

    async with app:
        await quick.enqueue()
        await work()
        began = cpu()
        if kind == "flow of three":
            for _ in range(count):
                flow = Flow()
                flow.add(quick, flow.add(quick), flow.add(quick))
                await app.enqueue_flow(flow)
        elif kind == "one at a time":
            for _ in range(count):
                await quick.enqueue()
        elif kind == "blocking caller":
            await asyncio.to_thread(lambda: [quick.sync.enqueue() for _ in range(count)])
        else:
            for _ in range(count // BULK):
                await app.enqueue_many([app.call(plain if kind == "plain functions" else quick) for _ in range(BULK)])
        stored = cpu()
        await work(10 if kind == "plain functions" else 100)
        print(json.dumps({"enqueue": (stored - began) / count, "run": (cpu() - stored) / count}))


if __name__ == "__main__":
    logging.disable(logging.INFO)
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
