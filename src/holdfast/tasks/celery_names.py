"""Names of Celery that Holdfast does not have, and what to write instead: for the errors of those who know Celery."""

from __future__ import annotations

from collections.abc import Mapping

TASK = {
    "delay": "`await task.enqueue(…)`, or `task.sync.enqueue(…)` in blocking code",
    "apply_async": "`await task.using(delay=60).enqueue(…)`, or `task.using(…).sync.enqueue(…)` in blocking code",
    "apply": "`task(…)`, which runs the function in place",
    "s": "`flow.add(task, …)` of a `Flow`",
    "si": "`flow.add(task, …)` of a `Flow`",
    "signature": "`flow.add(task, …)` of a `Flow`",
}
APP = {
    "send_task": "`await app.enqueue('name', …)`, or `app.sync.enqueue('name', …)` in blocking code",
    "autodiscover_tasks": "`Holdfast(imports=['shop.tasks'])`, or `holdfast worker start --discover shop`",
    "conf": "arguments of `Holdfast(…)`, HOLDFAST_… variables, or `app.config`",
    "AsyncResult": "`app.handle(id)`",
    "shared_task": "`@app.task`",
}
OPTIONS = {
    "bind": "annotate the first parameter instead, as in `def send(ctx: Context, …)`",
    "max_retries": "write max_attempts=, which counts the first run too",
    "default_retry_delay": "write retry=Backoff(base=60)",
    "autoretry_for": "every exception is retried; `raise Discard(…)` to stop",
    "rate_limit": "write limit=limit(…)",
    "time_limit": "write timeout=",
    "soft_time_limit": "write timeout=",
    "countdown": "write delay=",
    "eta": "write at=",
}


def missing(of: object, name: str, names: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that does not exist."""
    hint = f", which is Celery's: write {names[name]}" if name in names else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=of)
