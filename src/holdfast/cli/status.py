"""`holdfast status` and `holdfast queues`: job counts, queues and workers of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import options
from .connect import parts_of, print_none, watching, where

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..client.inspection import Stats
    from ..client.pauses import Pause
    from ..views import WorkerInfo


def status(url: options.Url = None, as_json: options.AsJson = False, watch: options.Watch = False) -> None:
    """Show job counts by state and queue, and the live workers."""

    async def refresh(app: Holdfast) -> None:
        from ..store.protocol import Costing
        from .printing import document, echo, json

        stats, workers, paused = await app.stats(), await app.workers(), await app.bulk.paused_tasks()
        refused = await app.errors.refused()
        parts = parts_of(app)
        store = parts.runtime.store
        cost = await store.cost() if isinstance(store, Costing) else None
        paid = not parts.url.startswith("file:")  # a local folder has no request price
        if as_json:
            shown: dict[str, Any] = {"store": where(app), "counts": stats.counts, "queues": stats.queues}
            shown["workers"] = workers
            shown["warnings"] = [{"what": one.what, "advice": one.advice} for one in stats.warnings]
            shown["refused"] = refused
            shown["paused_tasks"] = [{"task": one.task, "where": one.where} for one in paused]
            if cost is not None:
                shown["cost"] = {"requests_per_job": cost.requests_per_job}
                if paid:
                    shown["cost"]["dollars_per_million"] = cost.dollars_per_million
            (json if watch else document)(shown)
        else:
            print(f"Store: {where(app)}")
            _print_status(stats, [worker for worker in workers if worker.kind == "worker"])
            _print_paused(paused)
            for one in refused:
                echo(f"Warning: {one}")
            for one in stats.warnings:
                echo(f"Warning: {one.what}; {one.advice}")
            if cost is not None:
                price = f", ${cost.dollars_per_million:.2f} per million jobs (list price of S3)" if paid else ""
                print(f"Requests: {cost.requests_per_job:.3g} per job{price}")

    watching(url, refresh, watch=watch, as_json=as_json)


def _print_status(stats: Stats, workers: list[WorkerInfo]) -> None:
    from .printing import table

    table("Holdfast Status", ("State", "Count"), list(stats.counts.items()))
    if len(stats.queues) > 1 or any(queue.paused for queue in stats.queues):
        _print_queues(stats)
    pids = ", ".join(str(worker.pid) for worker in workers)
    print(f"Active Workers: {len(workers)} [{pids}]")


def _print_paused(paused: list[Pause]) -> None:
    from .printing import echo

    for one in paused:
        echo(f"Task {one.name} is paused; to resume it: holdfast resume {one.flags}")


def _print_queues(stats: Stats) -> None:
    from ..views import moment as aware
    from .printing import moment, table

    rows = [
        (
            queue.name,
            *(queue.counts.get(state, 0) for state in ("queued", "scheduled", "running", "failed", "dead")),
            "" if queue.oldest is None else moment(aware(queue.oldest)),
            queue.listeners,
            "paused" if queue.paused else "",
        )
        for queue in stats.queues
    ]
    columns = ("Queue", "Queued", "Scheduled", "Running", "Failed", "Dead", "Oldest Due", "Listeners", "")
    table("Queues", columns, rows, keep=("Queue",))


def queues(url: options.Url = None, as_json: options.AsJson = False, watch: options.Watch = False) -> None:
    """Show every queue: job counts by state, number of listening workers, and whether it is paused."""

    async def refresh(app: Holdfast) -> None:
        from .printing import document, json

        stats = await app.stats()
        if as_json:
            (json if watch else document)(stats.queues)
            return
        if stats.queues:
            print(f"Store: {where(app)}")
            _print_queues(stats)
        else:
            print_none(app, "queues")
        _print_paused(await app.bulk.paused_tasks())

    watching(url, refresh, watch=watch, as_json=as_json)
