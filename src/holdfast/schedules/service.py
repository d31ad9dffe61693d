"""Schedules in the store: declared in code or created by an operator; any worker enqueues due runs, each exactly once.

A run is a job whose key contains the schedule and the due time, so several workers may enqueue it and the store keeps
one. Then the schedule's next time is advanced by compare-and-set; after a crash between the two writes, the enqueue is
repeated with the same key. Record versions are never reused, so a worker that holds a deleted schedule cannot overwrite
a new one of the same name.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import msgspec

from ..client.audited import audited
from ..core import cron as schedule
from ..core.cron import Rule
from ..core.errors import (
    ConfigError,
    InvalidJob,
    JobNotFound,
    KeyConflict,
    OutcomeUnknown,
    QueueFull,
    ScheduleNotFound,
    StoreUnavailable,
)
from ..core.job import TERMINAL, LimitKey
from ..core.validation import checked_at, checked_name, checked_seconds
from ..core.writes import Writes
from ..observe.actors import note_before, note_target
from ..store.protocol import records_of
from ..tasks.options import OPTION_OF, JobOptions, Options, unknown_option
from ..tasks.task import Call, Task
from ..views import moment
from .schedule import KIND, Schedule, read, read_due_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..client.enqueue import Enqueue
    from ..client.handles import Handles
    from ..client.records import Records
    from ..client.runtime import Runtime
    from ..client.session import Session
    from ..core.job import NewJob
    from ..core.operations import Where
    from ..store.protocol import Versioned
    from ..tasks.handle import Handle
    from ..tasks.registry import Registry

_KEPT = {
    OPTION_OF.get(field, field): field
    for field in Options.__struct_fields__
    if OPTION_OF.get(field, field) in Schedule.__struct_fields__ and field not in ("expires_at", "deadline_at")
}
"""Job options that a schedule stores, each with its field of `Options`."""
_left: set[tuple[str, int]] = set()
"""Schedules, by name and version, whose refusal is already logged."""
logger = logging.getLogger("holdfast")


class Schedules:
    """The schedules of a store."""

    def __init__(
        self, runtime: Runtime, records: Records, registry: Registry, enqueue: Enqueue, handles: Handles
    ) -> None:
        self._runtime = runtime
        self._records = records
        self._registry = registry
        self._enqueue = enqueue
        self._handles = handles
        self.declared: dict[str, tuple[Call[Any], Rule]] = {}
        """Schedules declared in code, by name; a worker stores them when it starts."""

    async def list(self) -> list[Schedule]:
        """All schedules, sorted by name."""
        return [kept for kept, _ in await self._all()]

    async def get(self, name: str) -> Schedule:
        """One schedule; ScheduleNotFound if it does not exist."""
        return (await self._one(name))[0]

    async def put(
        self,
        name: str,
        call: Call[Any] | Task[..., Any] | str,
        /,
        *,
        cron: str | None = None,
        **rule: Unpack[RuleOptions],
    ) -> Schedule:
        """Create or change a schedule.

        `call` is a task, its name, or a call with arguments and options: `task.using(queue="x").call(1, 2)`.
        """
        await self._runtime.opened()
        return await self.keep(self.of_call(name, call, made_rule(cron, **rule)))

    def of_call(self, name: str, call: Call[Any] | Task[..., Any] | str, rule: Rule) -> Schedule:
        """A validated schedule from a call and a rule; nothing is stored."""
        if not isinstance(call, Call):
            call = self._registry.call(call, (), {})
        options, task = call.options, call.task.stored_as("json")
        own = task.options
        extra = {
            f"{OPTION_OF.get(field, field)}="
            for field in {*Options.__struct_fields__} - {*_KEPT.values()}
            if getattr(options, field) != getattr(own, field)
        }
        if extra:
            raise InvalidJob(
                f"schedule {name!r} was not stored: a schedule cannot have {', '.join(sorted(extra))}; it can have "
                f"{', '.join(f'{option}=' for option in _KEPT)} (expires= and deadline= in seconds); a limit must be"
                " set on the task"
            )
        job = self._enqueue.new_job(self._runtime.current_settings(), task, options, call.args, call.kwargs)
        if job.codec != "json":
            raise InvalidJob(
                f"schedule {name!r} was not stored: task {job.task!r} has its own codec; use a task with JSON arguments"
            )
        return self.of_job(name, job, options, rule)

    def of_job(self, name: str, job: NewJob, options: Options, rule: Rule) -> Schedule:
        """A schedule of such jobs; options that are not set come from the settings at each run."""
        for option, seconds in (("expires", options.expires_in), ("deadline", options.deadline_in)):
            if seconds is not None and seconds <= rule.jitter:
                raise InvalidJob(
                    f"schedule {name!r} was not stored: {option}= must be longer than jitter=, or a run can expire"
                    " before it is due"
                )
        chosen = {option: value for option, field in _KEPT.items() if (value := getattr(options, field)) is not None}
        return Schedule(
            checked_name(name, "schedule"),
            job.task,
            schedule.checked(rule),
            msgspec.Raw(job.payload),
            limit_key=job.limit_key,
            **chosen,
        )

    async def declare(self) -> None:
        """Store the schedules declared in code that are new or changed; a rejected one does not affect the others."""
        for name, (call, rule) in self.declared.items():
            try:
                await self._keep(msgspec.structs.replace(self.of_call(name, call, rule), in_code=True))
            except (InvalidJob, ConfigError) as error:
                logger.warning(
                    "schedule %s declared in code was rejected, so it will not run as declared: %s",
                    name,
                    error,
                )

    @audited("schedule.put")
    async def keep(self, wanted: Schedule) -> Schedule:
        """Store a schedule; if one of this name and rule exists, its next run and pause are kept."""
        return await self._keep(wanted)

    async def _keep(self, wanted: Schedule) -> Schedule:
        while True:
            kept = (await self._records.all(KIND)).get(wanted.name)
            before, after = None if kept is None else read(kept.value), wanted
            note_before(schedule=None if before is None else before.audit_target())
            if before is not None:
                after = msgspec.structs.replace(
                    wanted,
                    paused=before.paused,
                    last=before.last,
                    last_job=before.last_job,
                    next=before.next,
                    counted=before.counted,
                    error=before.error,
                    limit_key=self._limit_key(wanted.limit_key, before)
                    if wanted.makes_the_same(before)
                    else wanted.limit_key,
                )
            if before is None or before.rule != wanted.rule or before.next is None:
                after = after.from_now(await self._records.now())
            if after == before:
                return after
            after = msgspec.structs.replace(after, error=None)
            version = 0 if kept is None else kept.version
            if await self._records.put(KIND, after.name, msgspec.json.encode(after), version):
                return after

    @audited("schedule.pause")
    async def pause(self, name: str) -> Schedule:
        """Pause a schedule: no runs until it is resumed."""
        return await self._change(name, lambda kept: msgspec.structs.replace(kept, paused=True))

    @audited("schedule.resume")
    async def resume(self, name: str) -> Schedule:
        """Resume a schedule; runs missed during the pause are not enqueued."""
        now = await self._records.now()

        def resumed(kept: Schedule) -> Schedule:
            return msgspec.structs.replace(kept, paused=False).from_now(now) if kept.paused else kept

        return await self._change(name, resumed)

    @audited("schedule.run_now")
    async def run_now(self, name: str) -> Handle[Any]:
        """Enqueue one extra run now."""
        kept, _ = await self._one(name)
        id, _ = await self._store_run(kept)
        note_target(job=id)
        return self._handles.handle(id)

    @audited("schedule.delete")
    async def delete(self, name: str) -> None:
        """Delete a schedule; its jobs are kept."""
        kept, _ = await self._one(name)
        note_before(schedule=kept.audit_target())
        await self._records.put(KIND, name, None)

    async def make_due_runs(self, max_age: float = 0.0) -> float | None:
        """Enqueue all due runs; returns the seconds until the next run is due, None if none is known.

        Runs that cannot be enqueued are retried by the next call. `max_age`: seconds for which cached records may be
        used to find out whether a run is due; due schedules are read again before they run.
        """
        records = await self._records.recent(KIND, max_age)
        if not records:
            return None
        now = await self._records.now()
        if max_age and any(_is_due(record, now) for record in records.values()):
            records = await self._records.recent(KIND, 0.0)
        with Writes("the enqueue of due schedule runs", "the next check enqueues the missing runs") as writes:
            following = [await self._look(record, now, writes) for _, record in sorted(records.items())]
        soonest = min((due for due in following if due is not None and due > now), default=None)
        return None if soonest is None else (soonest - now) / schedule.MICROS

    # -- inside

    async def _look(self, record: Versioned, now: int, writes: Writes) -> int | None:
        """Enqueue the due runs of one record; returns the next due time."""
        if not _is_due(record, now):
            seen = read_due_fields(record.value)
            return None if seen is None or seen.paused else seen.next
        kept = read(record.value)
        return None if kept is None else await self._make_one(kept, record.version, now, writes)

    async def _make_one(self, kept: Schedule, version: int, now: int, writes: Writes) -> int | None:
        """Enqueue one schedule's runs and store the result, also errors; returns the next due time."""
        trouble: Exception | None = None
        try:
            after = await self._make(kept, now, writes)
        except StoreUnavailable:
            raise
        except OutcomeUnknown:
            return None  # the next check enqueues the same run again
        except Exception as error:  # noqa: BLE001  # a hook may raise anything
            after, trouble = kept.troubled(error), error
        try:
            written = after != kept and await self._records.put(KIND, kept.name, msgspec.json.encode(after), version)
        except InvalidJob as error:  # a server may refuse runs of shell commands
            if (kept.name, version) not in _left:
                _left.add((kept.name, version))
                logger.warning(
                    "schedule %s: the server refuses its runs from this worker; another worker must enqueue them: %s",
                    kept.name,
                    error,
                )
            return None
        writes.made += written
        if written and after.error is not None and after.error != kept.error:
            again = after.next is not None and after.next <= now
            logger.warning(
                "schedule %s: a run could not be enqueued and %s: %s",
                kept.name,
                "will be tried again" if again else "was skipped; correct the schedule or its task",
                after.error,
                exc_info=trouble,
            )
        return after.next

    async def _make(self, kept: Schedule, now: int, writes: Writes) -> Schedule:
        """Enqueue the due runs; returns the schedule to store."""
        assert kept.next is not None
        for due in schedule.runs_due(kept.rule, kept.next, now):
            job = kept.last_job
            if kept.rule.overlap == "skip" and job is not None and not await self._ended(job):
                said = "schedule %s: the run due at %s was skipped, because job %s has not ended (overlap='skip')"
                logger.info(said, kept.name, moment(due), job)
                continue
            try:
                job, limit_key = await self._enqueue_run(kept, due)
            except QueueFull as error:
                return msgspec.structs.replace(kept.troubled(error), next=due)  # the next check tries again
            except InvalidJob as error:
                kept = kept.troubled(error)  # permanent: a retry would fail in the same way
            else:
                writes.made += 1
                kept = msgspec.structs.replace(kept, last=due, last_job=job, limit_key=limit_key, error=None)
        return kept.from_now(now)

    async def _enqueue_run(self, kept: Schedule, due: int) -> tuple[str, LimitKey | None]:
        later = schedule.delayed(kept.rule, kept.name, due)
        try:
            return await self._store_run(
                kept,
                key=f"schedule/{kept.name}/{due}",
                meta={"schedule": kept.name},
                at=None if later <= due else moment(later),
            )
        except KeyConflict as error:
            return error.job_id, kept.limit_key  # enqueued before the schedule was changed

    async def _store_run(self, kept: Schedule, **more: Unpack[JobOptions]) -> tuple[str, LimitKey | None]:
        """Enqueue a job of a schedule; returns its id and limit key."""
        settings = (await self._runtime.opened()).fresh_settings()
        chosen = cast("JobOptions", {option: getattr(kept, option) for option in _KEPT})
        options = Options().changed({**chosen, **more})
        job = self._enqueue.submission(settings, kept.task, bytes(kept.payload), options, json=True)
        job = msgspec.structs.replace(job, limit_key=self._limit_key(job.limit_key, kept))
        return await self._enqueue.insert(job, options), job.limit_key

    def _limit_key(self, found: LimitKey | None, kept: Schedule) -> LimitKey | None:
        """The limit key for a job; the stored one if the task is not registered in this process."""
        return found if kept.task in self._registry.tasks else kept.limit_key or found

    async def _ended(self, id: str) -> bool:
        try:
            return (await self._handles.record(id)).state in TERMINAL
        except JobNotFound:
            return True

    async def _all(self) -> list[tuple[Schedule, int]]:
        found = [(read(kept.value), kept.version) for _, kept in sorted((await self._records.all(KIND)).items())]
        return [(kept, version) for kept, version in found if kept is not None]

    async def _one(self, name: str) -> tuple[Schedule, int]:
        record = (await self._records.all(KIND)).get(name)
        kept = None if record is None else read(record.value)
        if record is None or kept is None:
            raise ScheduleNotFound(name)
        return kept, record.version

    async def _change(self, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        while True:
            kept, version = await self._one(name)
            note_before(paused=kept.paused)
            changed = change(kept)
            if await self._records.put(KIND, name, msgspec.json.encode(changed), version):
                return changed


def _is_due(record: Versioned, now: int) -> bool:
    seen = read_due_fields(record.value)
    if seen is None or seen.paused or seen.next is None:
        return False
    # If the store's clock was ahead and has been corrected, `next` may be far in the future: compute it again.
    return seen.next <= now or seen.counted > now + schedule.LATE


class RuleOptions(TypedDict, total=False):
    """The options of a rule besides its cron line; their defaults and meaning are defined in `Rule`."""

    every: float | timedelta | None
    tz: str
    catch_up: int
    jitter: float | timedelta
    overlap: str
    start: datetime | float | None
    end: datetime | float | None


def made_rule(cron: str | None, **options: Unpack[RuleOptions]) -> Rule:
    """A rule from the arguments of `put`; InvalidJob if they contradict each other."""
    for name in options.keys() - RuleOptions.__annotations__.keys():
        raise unknown_option(name, RuleOptions.__annotations__)
    every, tz, jitter = options.get("every"), options.get("tz", "UTC"), options.get("jitter", 0.0)
    if cron is None and every is not None and tz != "UTC":
        raise InvalidJob(f"tz= needs cron=, but this schedule has every=, which is counted in UTC: remove tz= ({tz!r})")
    seconds = None if every is None else checked_seconds(every, "every", positive=True)
    checked: dict[str, Any] = {**options, "every": seconds, "jitter": checked_seconds(jitter, "jitter")}
    for name in ("start", "end"):
        checked[name] = None if (at := options.get(name)) is None else checked_at(at, name)
    return Rule(cron, **checked)


async def is_scheduled(session: Session, where: Where) -> bool:
    """Whether any schedule uses the queue or task of `where`."""
    kept = [read(one.value) for one in (await records_of(session.store, KIND)).values()]
    return any(where.queue == one.queue or where.task == one.task for one in kept if one is not None)
