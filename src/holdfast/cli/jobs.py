"""`holdfast list`, `show`, `cancel`, `retry`, `delete`, `explain`: inspect and change jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import InvalidJob
from . import completion, options
from .connect import parts_of, watching, where, with_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..client.explain import Explanation
    from ..client.inspection import Page
    from ..core.job import Record
    from ..views import Job, StepInfo


def list_jobs(
    *,
    state: options.State = None,
    queue: options.Queue = None,
    task: options.TaskName = None,
    tag: options.Tag = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of jobs.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Cursor printed by the previous page.")] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
    watch: options.Watch = False,
) -> None:
    """List jobs, newest first."""
    from ..views import states_named

    async def refresh(app: Holdfast) -> None:
        page = await app.jobs(state=state, queue=queue, task=task, tag=tag, limit=limit, cursor=cursor)
        show_page(app, page, ", ".join(states_named(state or [])), as_json=as_json, watch=watch)

    watching(url, refresh, watch=watch, as_json=as_json)


def show_page(app: Holdfast, page: Page, states: str, *, as_json: bool, watch: bool = False) -> None:
    """Print a page of jobs as a table or JSON; `states`: the states that were asked for, empty for all."""
    from .printing import document, json, moment, table, work

    if as_json:
        (json if watch else document)(page)
        return
    if not page.jobs:
        print(f"No jobs found{f' with state: {states}' if states else ''} in {where(app)}")
        return
    rows = [
        (
            job.id,
            work(job),
            job.state.value + (" (damaged)" if job.damage else ""),
            job.attempt,
            job.queue,
            moment(job.updated_at),
        )
        for job in page.jobs
    ]
    title = f"Jobs: {states}" if states else "Jobs"
    table(title, ("Job ID", "Command", "State", "Attempts", "Queue", "Updated At"), rows, keep=("Job ID", "State"))
    if page.cursor is not None:
        print(f"More jobs follow: --cursor {page.cursor}")


def show(
    id: options.JobId, url: options.Url = None, as_json: options.AsJson = False, watch: options.Watch = False
) -> None:
    """Show one job: fields, result or error, and all of its attempts."""

    async def refresh(app: Holdfast) -> None:
        from .printing import document, json

        job = await app.job(id)
        if as_json:
            (json if watch else document)(job)
        else:
            print_job(job)

    watching(url, refresh, watch=watch, as_json=as_json)


def print_job(job: Job) -> None:
    """Print the fields, attempts and traceback of a job as text."""
    from ..views import limits_text
    from .printing import echo, echo_fields, moment, safe, work

    result = None if job.result is None else job.result
    lines = {
        "job": job.id,
        "task": job.task,
        "command": work(job),
        "state": job.state.value + (" (cancellation requested)" if job.cancel_requested else ""),
        "queue": job.queue,
        "priority": job.priority or None,
        "attempt": f"{job.attempt} of {job.max_attempts or 'unlimited'}",
        "timeout": None if job.timeout is None else f"{job.timeout:g} s",
        "stall timeout": None if job.stall_timeout is None else f"{job.stall_timeout:g} s",
        "created": moment(job.created_at),
        "updated": moment(job.updated_at),
        "due": moment(job.run_at) if job.state.value in ("scheduled", "failed") else None,
        "limits": limits_text(job.limits),
        "flow": job.flow,
        "waits for": job.waiting_for,
        "expires": None if job.finished_at else moment(job.expires_at) or None,
        "deadline": None if job.finished_at else moment(job.deadline_at) or None,
        "started": moment(job.started_at) or None,
        "finished": moment(job.finished_at) or None,
        "worker": job.worker,
        "node, pid": f"{job.node}, {job.pid}" if job.worker else None,
        "steps": f"{len(job.steps)}, last: {_step(job.steps[-1])}" if job.steps else None,
        "progress": None if job.progress is None else _progress(job),
        "result": result,
        "error": job.error,
        "key": job.key,
        "tags": ", ".join(job.tags) or None,
        "meta": job.meta or None,
    } | {f"damaged {name}": value for name, value in job.damage.items()}
    echo_fields(lines)
    for line in job.history:
        took = f", {(line.ended_at - line.started_at).total_seconds():.2f} s" if line.started_at else ""
        error = f": {line.error}" if line.error else ""
        echo(f"  attempt {line.number} {line.outcome} at {moment(line.ended_at)}{took} on {line.worker}{error}")
    if job.traceback:
        for line in job.traceback.rstrip().splitlines():
            print("  " + safe(line))


def _step(step: StepInfo) -> str:
    from .printing import moment

    if step.kind == "step":
        return f"{step.name}, done at {moment(step.at)}"
    if step.kind == "sleep":
        return f"sleep until {moment(step.until)}"
    if step.at is not None:
        return f"signal {step.name}, {'timed out' if step.late else 'received'} at {moment(step.at)}"
    return f"waits for signal {step.name} until {moment(step.until)}"


def _progress(job: Job) -> str:
    progress = job.progress
    if progress is None:
        return ""
    of = "" if progress.total is None else f" of {progress.total:g}"
    return f"{progress.done:g}{of}" + (f", {progress.note}" if progress.note else "")


def cancel(id: options.JobId, url: options.Url = None) -> None:
    """Cancel a waiting job, or ask a running job to stop."""
    from ..core.internal import is_flow

    async def request(app: Holdfast) -> Record:
        done = await app.cancel(id)
        record = await parts_of(app).handles.record(id)
        if not done and not record.cancel:
            from ..core.errors import InvalidState

            raise InvalidState(id, record.state, "it has ended and cannot be cancelled")
        return record

    record = with_app(url, request)
    name = f"{'Flow' if is_flow(record) else 'Job'} {id}"
    print(f"{name} cancelled." if record.state == "cancelled" else f"{name} was asked to stop.")


def retry(id: options.JobId, url: options.Url = None) -> None:
    """Retry an ended job from attempt 0, or start a waiting job now."""
    print(with_app(url, lambda app: retried(app, id)))


async def retried(app: Holdfast, id: str, state: str | None = None) -> str:
    """Retry a job or flow, which must be in `state` if given; returns the message to print."""
    from ..core.errors import InvalidState
    from ..core.internal import is_flow

    before = await parts_of(app).handles.record(id)
    if state not in (None, before.state):
        raise InvalidState(id, before.state, f"this command retries only {state} jobs; use `holdfast retry {id}`")
    after = await app.retry(id)
    if is_flow(before):
        return f"Flow {id} continues; `holdfast flow show {id}` shows its progress."
    source = "DLQ" if before.state == "dead" else repr(str(before.state))
    return f"Job {id} moved from {source} to '{'blocked' if after.state == 'blocked' else 'queued'}'."


def delete(id: options.JobId, url: options.Url = None) -> None:
    """Delete a job that is not running, or a flow with all of its jobs."""
    with_app(url, lambda app: app.delete(id))
    print(f"Job {id} deleted.")


def explain(
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="The job's id. (default: all jobs of the store)",
            show_default=False,
            autocompletion=completion.job_ids,
        ),
    ] = None,
    queue: options.Queue = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Explain why a job is not running (or what it is doing); without ID, why the jobs of a queue or the store wait."""
    from ..core.internal import is_flow
    from .printing import document, echo

    if id is not None and queue is not None:
        raise InvalidJob("explain takes a job's ID or --queue, not both; leave one out")
    if id is None:
        found = with_app(url, lambda app: app.explain(queue=queue))
        if as_json:
            document(found)
        else:
            echo(f"{found.reason[:1].upper()}{found.reason[1:]}.")
            for part in found.parts:
                echo(f"  {part.text}: {part.action}")
        return

    async def read(app: Holdfast) -> tuple[Explanation, Record]:
        return await app.explain(id), await parts_of(app).handles.record(id)

    explanation, record = with_app(url, read)
    if as_json:
        document(explanation)
    else:
        echo(f"{'Flow' if is_flow(record) else 'Job'} {explanation.id} is {explanation.state}: {explanation.reason}.")
        for line in explanation.details:
            echo(f"  {line}")
