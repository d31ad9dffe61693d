"""Jobs: submit, look, operate."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from ..client.bulk_change import Changed
from ..codec.values import read
from ..core import internal as extra
from ..core.clock import MICROS
from ..core.errors import HoldfastError, InvalidJob, InvalidState, JobNotFound, KeyConflict
from ..core.job import NewJob, State
from ..core.validation import KEY_LIMIT, checked_text
from ..core.writes import Writes
from ..store.reference.apply import first_run_at, new_record
from ..tasks.options import Options
from ..views import job_view, limits_of, moment
from . import limits, scoping, shapes
from .call import Answer, Call, encode, json, nothing
from .problems import Refused, refused
from .shapes import chosen, job_out

if TYPE_CHECKING:
    from ..parts import Parts

RESERVED = "holdfast."
"""How the names of tasks begin whose jobs Holdfast makes by itself, such as deliveries of webhooks."""
PAGE_LOOKS = 100
"""How often the store is asked for one page; a page that ends early is short, and its cursor goes on."""
_decode_one = msgspec.json.Decoder(shapes.NewJobInBatch).decode


async def submit(call: Call, body: shapes.NewJob) -> Answer:
    """Store a job; the same Idempotency-Key again gives the same job, or replaces what it is to do."""
    parts = call.parts
    await parts.runtime.open()
    options = task_options(parts, body.type).changed({**chosen(body), "key": _key(call)})
    job = made_job(parts, body.type, bytes(body.payload), options)
    scoping.check(call.access.scope, job.queue, job.task, "this job")
    try:
        id = await parts.enqueue.insert(job, options)
    except KeyConflict as error:
        raise (await scoping.hidden(call, [error.job_id])).get(error.job_id, error) from None
    if id == job.id:
        return json(as_stored(job, parts.runtime.clock.now()), 201)
    then = "look at the job before you send it again"
    try:
        with Writes(f"the replacing of job {id!r}", then, made=int(options.replace), retry_safe=False):
            if hidden := await scoping.hidden(call, [id]):
                raise hidden[id]
            known = await call.app.job(id)
        return json(job_out(known), 200)
    except JobNotFound:  # it has ended and is removed, and its key is still remembered
        asked = as_stored(job, parts.runtime.clock.now())
        return json(msgspec.structs.replace(asked, id=id, status=shapes.REMOVED), 200)


async def submit_batch(call: Call, body: shapes.Batch) -> Answer:
    """Store many jobs in one round trip; each is taken or refused on its own."""
    parts = call.parts
    await parts.runtime.open()
    made: list[NewJob | Refused] = []
    for number, raw in enumerate(body.jobs):
        try:
            one = read(_decode_one, bytes(raw), f"job {number} of the batch")
            job = made_job(parts, one.type, bytes(one.payload), task_options(parts, one.type).changed(chosen(one)))
            call.service.policy.check_job(job)
            scoping.check(call.access.scope, job.queue, job.task, f"job {number} of the batch")
        except Refused as error:
            made.append(error)
        except InvalidJob as error:
            made.append(refused(error))
        else:
            made.append(job)
    jobs = [one for one in made if isinstance(one, NewJob)]
    stored = await parts.enqueue.insert_all(jobs) if jobs else []
    others = [_known(told) for told in stored]
    new = {job.id for job in jobs}
    hidden, ids = await scoping.hidden(call, [id for id in others if id and id not in new]), iter(stored)
    answers: list[shapes.BatchAnswer] = []
    for one in made:
        told = one if isinstance(one, Refused) else next(ids)
        told = hidden.get(_known(told), told)
        if isinstance(told, HoldfastError) and not isinstance(told, Refused):
            told = refused(told)
        if isinstance(told, Refused):
            answers.append(shapes.BatchAnswer(told.kind.status, problem=told.problem))
        else:
            answers.append(shapes.BatchAnswer(201 if isinstance(one, NewJob) and told == one.id else 200, told))
    return json(shapes.BatchOut(answers))


def _known(told: object) -> str:
    """The job that the answer to an insert names; "" for none."""
    return told if isinstance(told, str) else told.job_id if isinstance(told, KeyConflict) else ""


async def get(call: Call, id: str) -> Answer:
    """One job as it is now."""
    return json(job_out(await call.app.job(checked_text(id, "id"))))


async def list_jobs(call: Call, query: shapes.JobsQuery) -> Answer:
    """A page of jobs, newest first."""
    return await _page(call, query, query.state)


async def cancel(call: Call, id: str) -> Answer:
    """End a waiting job, ask a running one to stop."""
    with Writes(f"the cancelling of job {id!r}", "cancel it again") as writes:
        cancelled = await call.app.cancel(checked_text(id, "id"))
        writes.made += cancelled
        return json(shapes.Cancelled(cancelled, job_out(await call.app.job(id))))


async def retry(call: Call, id: str) -> Answer:
    """Run an ended job again, from attempt 0; or a waiting one at once."""
    return json(job_out(await call.app.retry(checked_text(id, "id"))))


async def delete(call: Call, id: str) -> Answer:
    """Remove a job that is not running."""
    await call.app.delete(checked_text(id, "id"))
    return nothing()


async def output(call: Call, id: str, query: shapes.OutputQuery) -> Answer:
    """What a job has printed, from a position on; Holdfast-Next-Position says where to go on."""
    await call.parts.handles.record(checked_text(id, "id"))  # a job without output is told from one that there is not
    data, following = bytearray(), query.position
    for piece in await call.app.output(id, query.position):
        data += piece.data[max(0, query.position - piece.position) :]
        following = piece.position + len(piece.data)
    return Answer(200, bytes(data), b"text/plain; charset=utf-8", {"holdfast-next-position": str(following)})


async def list_dead(call: Call, query: shapes.DeadQuery) -> Answer:
    """A page of the dead letters, newest first."""
    return await _page(call, query, State.DEAD)


async def retry_dead(call: Call, id: str) -> Answer:
    """Run a dead job again, from attempt 0."""
    job = await call.app.job(checked_text(id, "id"))
    if job.state != State.DEAD:
        raise InvalidState(id, job.state, "it is not among the dead letters")
    return json(job_out(await call.app.retry(id)))


async def retry_all_dead(call: Call, body: shapes.RetryDead) -> Answer:
    """Run all dead jobs again, or those of one queue."""
    seen = deque[Changed](maxlen=1)
    await call.app.bulk.retry_dead(queue=body.queue, dry_run=body.dry_run, progress=seen.append)
    [done] = seen
    return json(shapes.Retried(done.matched, done.changed, done.skipped, done.reasons))


async def _page(call: Call, query: shapes.JobsQuery | shapes.DeadQuery, state: str | list[str] | None) -> Answer:
    """A page that ends at its limit, or before it has too many bytes; a job that has more stands alone on one."""

    async def read(limit: int) -> tuple[list[bytes], str | None]:
        page = await call.app.jobs(
            state=state, queue=query.queue, task=query.type, tag=query.tag, limit=limit, cursor=cursor
        )
        return [encode(job_out(job)) for job in page.jobs if scoping.shown(call, job)], page.cursor

    jobs, cursor, room = list[bytes](), query.cursor, limits.PAGE_BYTES
    for _ in range(PAGE_LOOKS):  # more than enough, but for a token that is shown only some of the jobs
        if len(jobs) >= query.limit:
            break
        found, following = await read(min(limits.PAGE_STEP, query.limit - len(jobs)))
        sizes = accumulate(len(job) for job in found)
        fitting = sum(size <= room for size in sizes)
        if fitting < len(found):
            # Only the store can say where a page goes on: ask for one that ends here.
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
            f"the header Idempotency-Key is missing: 1 to {KEY_LIMIT} characters of your own choice for this job, so "
            "that the same request sent again is the same job"
        )
    try:
        return checked_text(given.decode(), "Idempotency-Key")
    except UnicodeDecodeError:
        raise InvalidJob("Idempotency-Key must be UTF-8") from None


def task_options(parts: Parts, name: str) -> Options:
    """A task's own options, where it is known here; InvalidJob where its jobs cannot be made over HTTP."""
    if name.startswith(RESERVED):
        raise InvalidJob(f"task {name!r} is Holdfast's own: nobody else submits its jobs")
    task = parts.registry.tasks.get(name)
    if task is not None and task.codec is not None:
        raise InvalidJob(f"task {name!r} has a codec of its own: its jobs cannot be made of JSON")
    return Options() if task is None else task.options


def made_job(parts: Parts, name: str, payload: bytes, options: Options) -> NewJob:
    """The job of a task with this payload, checked: where the task is known here, its arguments too."""
    task = parts.registry.tasks.get(name)
    if task is not None and not task.built_in:
        task.decode(payload)
    return parts.enqueue.submission(parts.session.fresh_settings(), name, payload, options, json=True)


def as_stored(job: NewJob, now: int) -> shapes.JobOut:
    """A job that was stored just now, without asking the store again: its times are by the server's clock.

    It is what `job_out` would say of its record, made faster: that of an empty job, changed.
    """
    due, created = first_run_at(job, now), moment(now)
    said = extra.read(job.extra)
    expires = said.expires_at if said.expires_in is None else now + int(said.expires_in * MICROS)
    return msgspec.structs.replace(
        _BLANK,
        **dict(zip(_SAME, _same(job), strict=True)),
        type=job.task,
        status=State.SCHEDULED if due > now else State.QUEUED,
        payload=msgspec.Raw(job.payload),
        run_at=created if due == now else moment(due),
        created_at=created,
        updated_at=created,
        expires_at=None if expires is None else moment(expires),
        limits=limits_of(job.limit_key),
    )


_BLANK = job_out(job_view(new_record(NewJob("", "", "", b"{}"), 0, 0)))
_SAME = ("id", "queue", "priority", "max_attempts", "timeout", "key", "tags", "meta")
_same = attrgetter(*_SAME)
