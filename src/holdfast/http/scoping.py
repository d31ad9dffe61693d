"""Enforces the scopes of tokens. Each route has a rule in the route table.

A rule gets the handler's arguments before the handler runs, and refuses the request or narrows it to the scope. Routes
without a rule refuse tokens with a scope (`endpoint.py`). Lists omit what is outside the scope, by `shown`. A job or
schedule outside the scope is answered as not found, so that a token cannot probe for ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..client.search import Scope
from ..core import internal as extra
from ..core.errors import JobNotFound, ScheduleNotFound
from ..core.job import Record
from ..core.validation import checked_text
from ..views import Job
from . import tokens
from .call import Call
from .problems import FORBIDDEN, Refused


def check(scope: Scope | None, queue: str, task: str, what: str) -> None:
    """Refuse a queue and task outside a scope."""
    if scope is not None and not scope.covers(queue, task):
        raise Refused(
            FORBIDDEN,
            f"{what} has queue {queue!r} and task {task!r}, but this token is only for {scope}; use another token",
        )


def shown(call: Call, job: Job) -> bool:
    """Whether a job may be shown to the sender of a request."""
    scope = call.access.scope
    return scope is None or (scope.covers(job.queue, job.task) and job.flow != job.id)


async def hidden(call: Call, ids: Iterable[str]) -> dict[str, Refused]:
    """Refusals, by id, for jobs that already have a key and are outside the sender's scope."""
    scope, ids = call.access.scope, list(ids)
    if scope is None or not ids:
        return {}
    detail = f"a job outside this token's scope ({scope}) already has this key; the job was not stored: use another key"
    found = await call.parts.session.store.get(ids)
    return {
        id: Refused(FORBIDDEN, detail)
        for id, record in zip(ids, found, strict=True)
        if record is None or not scope.covers(record.queue, record.task)
    }


async def one_job(call: Call, scope: Scope, given: dict[str, Any]) -> None:
    """The job in the path, to be read or settled."""
    id = checked_text(given.get("id", given.get("job")), "id")
    _check_record(scope, await call.parts.handles.record(id), id)


async def changed_job(call: Call, scope: Scope, given: dict[str, Any]) -> None:
    """The job in the path, to be changed."""
    id = checked_text(given["id"], "id")
    _check_changed(scope, await call.parts.handles.record(id), id)


async def made_jobs(_: Call, scope: Scope, given: dict[str, Any]) -> None:
    """Jobs to be stored; the handler checks each, because the task's options may set the queue."""
    body = given["body"]
    if scope.queues and (getattr(body, "replace", False) or getattr(body, "debounce", None) is not None):
        raise Refused(FORBIDDEN, f"this token is only for {scope}; replace and debounce need a token for all queues, "
                      "because the job of this key may be in any queue")  # fmt: skip


async def filtered(_: Call, scope: Scope, given: dict[str, Any]) -> None:
    """A query by queue and task."""
    given["query"] = _narrowed(scope, given["query"])


async def bulk(call: Call, scope: Scope, given: dict[str, Any]) -> None:
    """A bulk operation, by ids or by a filter."""
    body = given["body"]
    if body.to is not None:
        _check_part(scope.covers_task(body.to), scope, "task", body.to)
    if body.filter is not None:
        _narrowed(scope, body.filter)
    if body.ids:
        await call.app.open()
        ids = [checked_text(id, "an id") for id in body.ids]
        for id, record in zip(ids, await call.parts.session.store.get(ids), strict=True):
            _check_changed(scope, record, id)


async def claim(_: Call, scope: Scope, given: dict[str, Any]) -> None:
    """A claim of jobs of some queues and tasks."""
    body = given["body"]
    types = body.types
    if types is None and scope.tasks:
        if any("*" in task for task in scope.tasks):
            detail = f"this token is only for {scope}: set `types` to the tasks to claim"
            raise Refused(FORBIDDEN, detail)
        types = list(scope.tasks)
    for queue in body.queues:
        _check_part(scope.covers_queue(queue), scope, "queue", queue)
    for task in types or ():
        _check_part(scope.covers_task(task), scope, "task", task)
    given["body"] = msgspec.structs.replace(body, types=types)


async def schedule(call: Call, scope: Scope, given: dict[str, Any]) -> None:
    """The schedule in the path."""
    kept = await call.app.schedules.get(given["name"])
    if not scope.covers(kept.queue, kept.task):
        raise ScheduleNotFound(given["name"])


async def kept_schedule(call: Call, scope: Scope, given: dict[str, Any]) -> None:
    """A schedule to be created or changed; the handler checks the new one."""
    try:
        kept = await call.app.schedules.get(given["name"])
    except ScheduleNotFound:
        return
    check(scope, kept.queue, kept.task, f"schedule {kept.name!r:.200}")


async def listed(call: Call, scope: Scope, given: dict[str, Any]) -> None:
    """A list of schedules or tokens; the handler omits those outside the scope."""


async def token(call: Call, scope: Scope, given: dict[str, Any]) -> None:
    """The token in the path."""
    found = {one.id: Scope(one.queues, one.tasks) for one in await tokens.tokens(call.parts.records)}
    if (its := found.get(given["id"])) is None or not scope.contains(its):
        raise tokens.UnknownToken(given["id"])


async def made_token(_: Call, scope: Scope, given: dict[str, Any]) -> None:
    """A token to be created; by default it gets the same scope."""
    body = given["body"]
    body = msgspec.structs.replace(body, queues=body.queues or scope.queues, tasks=body.tasks or scope.tasks)
    if not scope.contains(Scope(body.queues, body.tasks)):
        raise Refused(
            FORBIDDEN, f"no token was created: its queues and tasks must be within the scope of this token ({scope})"
        )
    given["body"] = body


async def whole_queues(_: Call, scope: Scope, given: dict[str, Any]) -> None:
    """Whole queues, of which the handler omits those outside the scope; or the queue in the path."""
    if scope.tasks:
        raise Refused(
            FORBIDDEN, f"this route acts on whole queues, but this token is only for {scope}; use a token without tasks"
        )
    if "name" in given:
        _check_part(scope.covers_queue(given["name"]), scope, "queue", given["name"])


async def whole_task(_: Call, scope: Scope, given: dict[str, Any]) -> None:
    """The task in the path, in every queue."""
    if scope.queues:
        raise Refused(
            FORBIDDEN,
            f"this route acts on a task in all queues, but this token is only for {scope}; use a token without queues",
        )
    _check_part(scope.covers_task(given["name"]), scope, "task", given["name"])


def _check_part(covered: bool, scope: Scope, what: str, name: str) -> None:
    if not covered:
        raise Refused(
            FORBIDDEN, f"{what} {name!r:.200} is outside the scope of this token ({scope}); use another token"
        )


def _check_record(scope: Scope, record: Record | None, id: str) -> Record:
    if record is None or extra.is_flow(record) or not scope.covers(record.queue, record.task):
        raise JobNotFound(id)
    return record


def _check_changed(scope: Scope, record: Record | None, id: str) -> None:
    if (flow := extra.flow_of(_check_record(scope, record, id))) is not None:
        detail = (
            f"job {id!r:.200} was not changed: it belongs to flow {flow!r:.200}, whose other jobs would change too, "
        )
        raise Refused(FORBIDDEN, f"{detail}but this token is only for {scope}; use a token without a scope")


def _narrowed(scope: Scope, wanted: Any) -> Any:
    """The query restricted to the scope; Refused if it names a queue or task outside."""
    queue, task = wanted.queue or scope.only_queue, wanted.type or scope.only_task
    if queue is not None:
        _check_part(scope.covers_queue(queue), scope, "queue", queue)
    if task is not None:
        _check_part(scope.covers_task(task), scope, "task", task)
    return msgspec.structs.replace(wanted, queue=queue, type=task)
