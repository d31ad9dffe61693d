"""Routes to submit, inspect and operate jobs."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from datetime import UTC
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import msgspec

from ..client.bulk_change import Changed
from ..client.output import attempts_of, with_attempts
from ..codec.values import read
from ..core import follow_ups
from ..core import internal as extra
from ..core.clock import MICROS
from ..core.errors import HoldfastError, InvalidJob, InvalidState, JobNotFound, KeyConflict
from ..core.job import TERMINAL, NewJob, State
from ..core.log_lines import Lines, Splitter, as_text
from ..core.operations import Printed
from ..core.validation import KEY_LIMIT, RESERVED, checked_text
from ..core.writes import Writes
from ..store.reference.apply import first_run_at, new_record
from ..tasks.options import Options
from ..views import job_view, limits_of, moment
from . import limits, scoping, shapes, sse
from .call import Answer, Call, Stream, encode, json, nothing
from .problems import Refused, refused
from .shapes import chosen, job_out

if TYPE_CHECKING:
    from ..parts import Parts
    from ..tasks.options import EditOptions

MAX_PAGE_READS = 100
"""Maximum reads of the store for one page; a shorter page has a cursor to continue from."""
_NO_OPTIONS = Options()
_decode_one = msgspec.json.Decoder(shapes.NewJobInBatch).decode


async def submit(call: Call, body: shapes.NewJob) -> Answer:
    """Submit a job; a repeated Idempotency-Key returns the existing job, or replaces it if requested."""
    parts = call.parts
    await parts.runtime.open()
    options = task_options(parts, body.type).changed({**chosen(body), "key": _key(call)})
    job = made_job(parts, body.type, bytes(body.payload), options)
    _check_scope(call, job, "this job")
    try:
        id = await parts.enqueue.insert(job, options)
    except KeyConflict as error:
        raise (await scoping.hidden(call, [error.job_id])).get(error.job_id, error) from None
    if id == job.id:
        return json(as_stored(job, parts.runtime.clock.now()), 201)
    then = "read the job before you send the request again"
    try:
        with Writes(f"the replacement of job {id!r}", then, made=int(options.replace), retry_safe=False):
            if hidden := await scoping.hidden(call, [id]):
                raise hidden[id]
            known = await call.app.job(id)
        return json(job_out(known), 200)
    except JobNotFound:  # ended and removed, but its key is still remembered
        asked = as_stored(job, parts.runtime.clock.now())
        return json(msgspec.structs.replace(asked, id=id, status=shapes.REMOVED), 200)


async def submit_batch(call: Call, body: shapes.Batch) -> Answer:
    """Submit many jobs in one request; each is stored or refused individually."""
    parts = call.parts
    await parts.runtime.open()
    made: list[NewJob | Refused] = []
    for number, raw in enumerate(body.jobs):
        try:
            one = read(_decode_one, bytes(raw), f"job {number} of the batch")
            job = made_job(parts, one.type, bytes(one.payload), task_options(parts, one.type).changed(chosen(one)))
            call.service.policy.check_job(job)
            _check_scope(call, job, f"job {number} of the batch")
        except Refused as error:
            made.append(error)
        except InvalidJob as error:
            made.append(refused(error))
        else:
            made.append(job)
    jobs = [one for one in made if isinstance(one, NewJob)]
    stored = await parts.enqueue.insert_all(jobs) if jobs else []
    others = [_known(one) for one in stored]
    new = {job.id for job in jobs}
    hidden, ids = await scoping.hidden(call, [id for id in others if id and id not in new]), iter(stored)
    answers: list[shapes.BatchAnswer] = []
    for one in made:
        result = one if isinstance(one, Refused) else next(ids)
        result = hidden.get(_known(result), result)
        if isinstance(result, HoldfastError) and not isinstance(result, Refused):
            result = refused(result)
        if isinstance(result, Refused):
            answers.append(shapes.BatchAnswer(result.kind.status, problem=result.problem))
        else:
            answers.append(shapes.BatchAnswer(201 if isinstance(one, NewJob) and result == one.id else 200, result))
    return json(shapes.BatchOut(answers))


def _check_scope(call: Call, job: NewJob, what: str) -> None:
    """Refuse a job outside of the sender's scope, or one with such a follow-up."""
    scoping.check(call.access.scope, job.queue, job.task, what)
    for one in follow_ups.jobs_in(job.extra):
        if one.task.startswith(RESERVED):
            raise InvalidJob(
                f"task {one.task!r} is internal to Holdfast: it cannot be the follow-up of {what}; name another task in"
                " on_success or on_dead"
            )
        scoping.check(call.access.scope, one.queue, one.task, f"the follow-up of {what}")


def _known(result: object) -> str:
    """The job id in the result of an insert; "" for none."""
    return result if isinstance(result, str) else result.job_id if isinstance(result, KeyConflict) else ""


async def get(call: Call, id: str) -> Answer:
    """The current state of one job."""
    return json(job_out(await call.app.job(checked_text(id, "id"))))


async def list_jobs(call: Call, query: shapes.JobsQuery) -> Answer:
    """A page of jobs, newest first."""
    return await _page(call, query, query.state)


async def cancel(call: Call, id: str) -> Answer:
    """Cancel a waiting job, or ask a running job to stop."""
    with Writes(f"the cancellation of job {id!r}", "cancel the job again") as writes:
        cancelled = await call.app.cancel(checked_text(id, "id"))
        writes.made += cancelled
        return json(shapes.Cancelled(cancelled, job_out(await call.app.job(id))))


async def retry(call: Call, id: str) -> Answer:
    """Retry an ended job from attempt 0, or start a waiting job now."""
    return json(job_out(await call.app.retry(checked_text(id, "id"))))


async def edit(call: Call, id: str, body: shapes.EditJob) -> Answer:
    """Edit a waiting job: its arguments, time, priority or queue."""
    record = await call.parts.handles.record(checked_text(id, "id"))
    scoping.check(call.access.scope, body.queue or record.queue, record.task, "the edited job")
    payload = bytes(body.payload) or None
    return json(job_out(await call.parts.edits.edit(id, cast("EditOptions", chosen(body)), payload=payload)))


async def clone(call: Call, id: str, body: shapes.CloneJob) -> Answer:
    """Enqueue a new job like this one, with edits."""
    record = await call.parts.handles.record(checked_text(id, "id"))
    scoping.check(call.access.scope, body.queue or record.queue, record.task, "the clone")
    payload = bytes(body.payload) or None
    try:
        handle = await call.parts.edits.clone(id, chosen(body), payload=payload)
    except KeyConflict as error:
        raise (await scoping.hidden(call, [error.job_id])).get(error.job_id, error) from None
    if hidden := await scoping.hidden(call, [handle.id]):
        raise hidden[handle.id]
    return json(job_out(await call.app.job(handle.id)), 201)


async def delete(call: Call, id: str) -> Answer:
    """Delete a job that is not running."""
    await call.app.delete(checked_text(id, "id"))
    return nothing()


async def output(call: Call, id: str, query: shapes.OutputQuery) -> Answer:
    """The output of a job from a position; the header Holdfast-Next-Position is where to continue."""
    record = await call.parts.handles.record(checked_text(id, "id"))  # JobNotFound, rather than empty output
    data, parts = bytearray(), Splitter(query.position)
    for piece in await call.app.handle(id).output(query.position):
        for part in parts.split(piece):
            if isinstance(part, Printed):
                data += part.data
                continue
            if data and not data.endswith(b"\n"):
                data += b"\n"
            data += f"{as_text(part, UTC)}\n".encode()
    if not data and record.state in TERMINAL:
        data += b"".join(part.data for part in parts.rest())
    return Answer(200, bytes(data), b"text/plain; charset=utf-8", {"holdfast-next-position": str(parts.position)})


async def logs(call: Call, id: str, query: shapes.OutputQuery) -> Answer:
    """The lines of a job from a position; `position` in the answer is where to continue."""
    record = await call.parts.handles.record(checked_text(id, "id"))
    lines, attempts = Lines(query.position), attempts_of(record)
    found = [line for piece in await call.app.handle(id).output(query.position) for line in lines.add(piece)]
    if not found and record.state in TERMINAL:
        found = lines.rest()
    if any(line.fence not in attempts for line in found):  # claimed meanwhile
        with suppress(JobNotFound):
            attempts |= attempts_of(await call.parts.handles.record(id))
    return json(shapes.LogsOut(with_attempts(found, attempts), lines.position))


async def stream(call: Call, id: str, query: shapes.StreamQuery) -> Stream:
    """Stream the chunks that a job emits: `chunk` events, and `end` after its end; Last-Event-ID resumes."""
    handle = call.app.handle(checked_text(id, "id"))
    position = sse.resumed_at(call.header(b"last-event-id"), query.position)
    sse.reserve(call)
    try:
        await sse.checked(handle, position)
    except BaseException:
        call.service.stream_ended()
        raise
    return sse.answer(call, sse.chunk_events(handle, position, follow=query.follow))


async def list_dead(call: Call, query: shapes.DeadQuery) -> Answer:
    """A page of dead jobs, newest first."""
    return await _page(call, query, State.DEAD)


async def retry_dead(call: Call, id: str) -> Answer:
    """Retry a dead job from attempt 0."""
    job = await call.app.job(checked_text(id, "id"))
    if job.state != State.DEAD:
        raise InvalidState(id, job.state, f"this route retries only dead jobs; use POST /v1/jobs/{id}/retry")
    return json(job_out(await call.app.retry(id)))


async def retry_all_dead(call: Call, body: shapes.RetryDead) -> Answer:
    """Retry all dead jobs, or those of one queue."""
    seen = deque[Changed](maxlen=1)
    await call.app.bulk.retry_dead(queue=body.queue, rate=body.rate, dry_run=body.dry_run, progress=seen.append)
    [done] = seen
    return json(shapes.Retried(done.matched, done.changed, done.skipped, done.reasons))


async def _page(call: Call, query: shapes.JobsQuery | shapes.DeadQuery, state: str | list[str] | None) -> Answer:
    """A page of up to `limit` jobs and `PAGE_BYTES` bytes; a larger job gets a separate page."""

    async def read(limit: int) -> tuple[list[bytes], str | None]:
        page = await call.app.jobs(
            state=state, queue=query.queue, task=query.type, tag=query.tag, limit=limit, cursor=cursor
        )
        return [encode(job_out(job)) for job in page.jobs if scoping.shown(call, job)], page.cursor

    jobs, cursor, room = list[bytes](), query.cursor, limits.PAGE_BYTES
    for _ in range(MAX_PAGE_READS):  # reached only by a token whose scope hides most jobs
        if len(jobs) >= query.limit:
            break
        found, following = await read(min(limits.PAGE_STEP, query.limit - len(jobs)))
        sizes = accumulate(len(job) for job in found)
        fitting = sum(size <= room for size in sizes)
        if fitting < len(found):
            # Only the store can make a cursor: read again with the limit that fits.
            if fitting or not jobs:
                found, cursor = await read(max(1, fitting))
                jobs += found
            break
        jobs, cursor, room = jobs + found, following, room - sum(map(len, found))
        if cursor is None:
            break
    return json({"jobs": [msgspec.Raw(job) for job in jobs], "cursor": cursor})


def _key(call: Call) -> str:
    given = call.header(b"idempotency-key")
    if not given:
        raise InvalidJob(
            f"the job was not stored: the header Idempotency-Key is missing. Choose 1 to {KEY_LIMIT} characters for "
            "this job, so that a repeated request returns the same job"
        )
    try:
        return checked_text(given.decode(), "Idempotency-Key")
    except UnicodeDecodeError:
        raise InvalidJob("the job was not stored: the header Idempotency-Key must be UTF-8") from None


def task_options(parts: Parts, name: str) -> Options:
    """The options of a task if it is registered; InvalidJob if its jobs cannot be submitted over HTTP."""
    if name.startswith(RESERVED):
        raise InvalidJob(f"task {name!r} is internal to Holdfast: its jobs cannot be submitted")
    task = parts.registry.tasks.get(name)
    if task is not None and task.stored_as("json").codec is not None:
        raise InvalidJob(
            f"task {name!r} has its own codec: its jobs cannot be submitted as JSON; enqueue them in Python"
        )
    return _NO_OPTIONS if task is None else task.options


def made_job(parts: Parts, name: str, payload: bytes, options: Options) -> NewJob:
    """A validated job of a task with this payload; the arguments are validated if the task is registered."""
    task = parts.registry.tasks.get(name)
    if task is not None and not task.built_in:
        task.stored_as("json").decode(payload)
    return parts.enqueue.submission(parts.session.fresh_settings(), name, payload, options, json=True)


def as_stored(job: NewJob, now: int) -> shapes.JobOut:
    """A job that was just stored, without reading it: its times are from the server's clock.

    Equals `job_out` of its record, but faster: a modified copy of an empty job.
    """
    due, created = first_run_at(job, now), moment(now)
    internal = extra.read(job.extra)
    expires = internal.expires_at if internal.expires_in is None else now + int(internal.expires_in * MICROS)
    deadline = internal.deadline_at if internal.deadline_in is None else now + int(internal.deadline_in * MICROS)
    return msgspec.structs.replace(
        _BLANK,
        id=job.id,
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        key=job.key,
        tags=job.tags,
        meta=job.meta,
        type=job.task,
        status=State.SCHEDULED if due > now else State.QUEUED,
        payload=msgspec.Raw(job.payload),
        run_at=created if due == now else moment(due),
        created_at=created,
        updated_at=created,
        expires_at=None if expires is None else moment(expires),
        deadline_at=None if deadline is None else moment(deadline),
        stall_timeout=internal.stall_timeout,
        limits=limits_of(job.limit_key),
    )


_BLANK = job_out(job_view(new_record(NewJob("", "", "", b"{}"), 0, 0)))
