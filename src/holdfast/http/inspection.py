"""Routes of statistics, queues, pauses, workers, settings and health checks."""

from __future__ import annotations

import asyncio
import logging

from ..client.inspection import Stats
from ..client.pauses import checked_pause
from ..core.errors import HoldfastError, StoreUnavailable
from ..core.operations import QueueStats
from ..core.url import redact
from ..views import moment
from . import limits, shapes
from .call import Answer, Call, json, nothing
from .problems import NOT_PAUSED, NOT_SET, STORE_UNAVAILABLE, Refused

logger = logging.getLogger("holdfast.http")


async def stats(call: Call) -> Answer:
    """Job counts by state and queue, the number of live workers, refused jobs, and durability warnings of the store."""
    found = await _stats(call)
    scope, refused = call.access.scope, await call.service.refused()
    warnings = [shapes.StoreWarning(one.what, one.advice) for one in found.warnings]
    unknown = [
        shapes.RefusedOut(one.queue, one.task, one.count, one.exact, one.error)
        for one in refused
        if scope is None or scope.covers(one.queue, one.task)
    ]
    queues = [_queue(queue) for queue in found.queues]
    return json(shapes.StatsOut(found.counts, found.workers, queues, warnings, unknown))


async def queues(call: Call) -> Answer:
    """All queues that have jobs, are paused or have live workers."""
    return json(shapes.QueuesOut([_queue(queue) for queue in (await _stats(call)).queues]))


async def _stats(call: Call) -> Stats:
    """Statistics of the queues in the token's scope."""
    found, scope = await call.app.stats(), call.access.scope
    queues = [one for one in found.queues if scope is None or scope.covers_queue(one.name)]
    return Stats(queues, found.workers, found.warnings)


async def pause(call: Call, name: str) -> Answer:
    """Pause a queue: no more of its jobs start; running jobs continue."""
    known = await call.app.pause(name)
    return json(shapes.Paused(name, paused=True, known=known))


async def resume(call: Call, name: str) -> Answer:
    """Resume a queue."""
    await call.app.resume(name)
    return json(shapes.Paused(name, paused=False))


async def paused_tasks(call: Call) -> Answer:
    """All pauses of tasks, or of their jobs with certain arguments."""
    found = await call.app.bulk.paused_tasks()
    return json(shapes.PausedTasksOut([shapes.PausedTask(one.task, one.where, moment(one.since)) for one in found]))


async def pause_task(call: Call, name: str, body: shapes.TaskJobs) -> Answer:
    """Pause a task, or its jobs with certain arguments; running jobs continue."""
    known = await call.app.pause(task=name, where=body.where)
    return json(shapes.TaskPaused(name, body.where, paused=True, known=known))


async def resume_task(call: Call, name: str, body: shapes.TaskJobs) -> Answer:
    """Resume a task; `where` must be the same as in the pause."""
    if not await call.app.resume(task=name, where=body.where):
        scope, paused = call.access.scope, await call.app.bulk.paused_tasks()
        names = ", ".join(one.name for one in paused if scope is None or scope.covers_task(one.task))
        known = f"these are paused: {names}" if names else "no task that you may see is paused"
        raise Refused(
            NOT_PAUSED, f"task {checked_pause(name, body.where).name} is not paused, so it was not resumed; {known}"
        )
    return json(shapes.TaskPaused(name, body.where, paused=False))


async def workers(call: Call) -> Answer:
    """The live workers and manual claims, and the workers that ended within the last hour."""
    return json(shapes.WorkersOut(await call.app.workers(), await call.app.timeseries.ended_workers()))


async def list_settings(call: Call) -> Answer:
    """All settings stored in the store."""
    return json(shapes.SettingsOut(await call.app.config.list()))


async def get_setting(call: Call, key: shapes.SettingName) -> Answer:
    """One setting stored in the store."""
    value = await call.app.config.get(key)
    if value is None:
        raise Refused(NOT_SET, f"setting {key} is not set in this store: the environment or the default applies")
    return json(shapes.Setting(key, value))


async def put_setting(call: Call, key: shapes.SettingName, body: shapes.NewValue) -> Answer:
    """Store a setting for all clients and workers of the store."""
    name, value = await call.app.config.set(key, body.value)
    return json(shapes.Setting(name, value))


async def delete_setting(call: Call, key: shapes.SettingName) -> Answer:
    """Remove a setting from the store."""
    await call.app.config.unset(key)
    return nothing()


async def health(_: Call) -> Answer:
    """Liveness: the server responds; the store is not checked."""
    return json(shapes.Health("ok", "holdfast"))


async def ready(call: Call) -> Answer:
    """Readiness: the store responds."""
    try:
        async with asyncio.timeout(limits.READY_SECONDS):
            await call.parts.records.all("config")
    except (HoldfastError, TimeoutError) as error:
        # Unauthenticated clients may call this, and the error may contain the store's URL.
        late = StoreUnavailable(
            f"{redact(call.parts.url)} did not respond within {limits.READY_SECONDS:g} s; check the store"
        )
        call.parts.runtime.outages.failed("readiness check", error if isinstance(error, HoldfastError) else late)
        detail = "the store does not respond; see the log of the server"
        raise Refused(STORE_UNAVAILABLE, detail, retry_safe=True, retry_after=limits.RETRY_AFTER) from error
    call.parts.runtime.outages.worked("readiness check")
    return json(shapes.Health("ok", "holdfast"))


async def openapi(call: Call) -> Answer:
    """The OpenAPI document."""
    return Answer(200, call.service.openapi)


def _queue(queue: QueueStats) -> shapes.QueueOut:
    oldest = None if queue.oldest is None else moment(queue.oldest)
    return shapes.QueueOut(queue.name, queue.counts, oldest, queue.paused, queue.listeners)
