"""Schedules in the store: made by code or by hand, carried out by whichever worker looks first, each run exactly once.

A run is a job whose key is the schedule and the time it was due, so that any number of workers may make it: the store
keeps one. Only then is the schedule's next time moved on, by compare-and-set; after a crash in between the same job is
made again, and is the same.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from . import schedule
from .checks import checked_name, checked_seconds
from .errors import InvalidJob, JobNotFound, KeyConflict, OutcomeUnknown, QueueFull, ScheduleNotFound, StoreUnavailable
from .job import TERMINAL
from .retry import Backoff
from .schedule import Rule
from .task import Call, Options, Task

if TYPE_CHECKING:
    from .app import Holdfast
    from .handle import Handle
    from .job import NewJob

KIND = "schedule"
logger = logging.getLogger("holdfast")


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that is enqueued again and again."""

    name: str
    task: str
    rule: Rule
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    """The arguments, as the job's payload has them."""
    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | None = None
    retry: Backoff | None = None
    tags: tuple[str, ...] = ()
    in_code: bool = False
    """Declared by `app.cron` or `app.every`; what the code says counts at the next start of a worker."""
    paused: bool = False
    next: int | None = None
    """When the next run is due, in microseconds since 1970."""
    last: int | None = None
    last_job: str | None = None
    expires: float | None = None
    """Seconds within which a run must start."""

    @property
    def next_run(self) -> datetime | None:
        """When it is due next; None while it is paused."""
        return None if self.next is None or self.paused else _time(self.next)

    @property
    def last_run(self) -> datetime | None:
        """When the last run that was made was due."""
        return None if self.last is None else _time(self.last)

    @property
    def words(self) -> str:
        """Its rule as one would say it."""
        return schedule.in_words(self.rule)


_decode = msgspec.json.Decoder(Schedule).decode
_told: set[tuple[str, int]] = set()
"""Schedules, by name and version, whose trouble is in the log already."""


class Schedules:
    """The schedules of a store."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    async def list(self) -> list[Schedule]:
        """All of them, by name."""
        return [kept for kept, _ in await self._all()]

    async def get(self, name: str) -> Schedule:
        """One of them."""
        return (await self._one(name))[0]

    async def put(
        self,
        name: str,
        call: Call[Any] | Task[..., Any] | str,
        /,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        tz: str = "UTC",
        catch_up: int = 1,
        jitter: float | timedelta = 0.0,
        overlap: str = "allow",
    ) -> Schedule:
        """Make a schedule, or change the one of this name.

        `call` is a task, its name, or a call with arguments and options: `task.using(queue="x").call(1, 2)`.
        """
        await self._app.open()
        rule = made_rule(cron, every, tz=tz, catch_up=catch_up, jitter=jitter, overlap=overlap)
        return await self.keep(self.of_call(name, call, rule))

    def of_call(self, name: str, call: Call[Any] | Task[..., Any] | str, rule: Rule) -> Schedule:
        """The schedule that a call and a rule stand for, checked; nothing is stored yet."""
        if not isinstance(call, Call):
            call = self._app.call(call)
        options, app = call.options, self._app
        if options.limit is not call.task.options.limit:
            raise InvalidJob(f"schedule {name!r}: limit= of one call is not kept; give it to task {call.task.name!r}")
        job = app.new_job(app.session.settings, call.task, options, call.args, call.kwargs)
        if job.codec != "json":
            raise InvalidJob(f"schedule {name!r}: task {job.task!r} has a codec of its own; JSON alone is kept here")
        return self.of_job(name, job, options, rule)

    def of_job(self, name: str, job: NewJob, options: Options, rule: Rule) -> Schedule:
        """The schedule of such jobs; where `options` leaves something open, the settings of each run count."""
        if options.expires_in is not None and options.expires_in <= rule.jitter:
            raise InvalidJob(f"schedule {name!r}: its runs would expire before they are due: jitter= is over expires=")
        return Schedule(
            checked_name(name, "schedule"),
            job.task,
            schedule.checked(rule),
            msgspec.Raw(job.payload),
            job.queue,
            job.priority,
            options.max_attempts,
            options.timeout,
            options.retry,
            job.tags,
            expires=options.expires_in,
        )

    async def declare(self) -> None:
        """Put what the code declares into the store: new ones, and what the code says otherwise than before."""
        for name, (task, rule) in self._app.declared.items():
            await self.keep(msgspec.structs.replace(self.of_call(name, task, rule), in_code=True))

    async def keep(self, wanted: Schedule) -> Schedule:
        """Store a schedule; where there was one of this name and rule, it goes on from where that one is."""
        while True:
            kept = (await self._app.records(KIND)).get(wanted.name)
            before = None if kept is None else read(kept.value)
            if before is not None:
                wanted = msgspec.structs.replace(
                    wanted, paused=before.paused, last=before.last, last_job=before.last_job, next=before.next
                )
            if before is None or before.rule != wanted.rule or before.next is None:
                now = await self._app.now()
                wanted = msgspec.structs.replace(wanted, next=schedule.next_after(wanted.rule, now))
            if wanted == before:
                return wanted
            version = 0 if kept is None else kept.version
            if await self._app.put_record(KIND, wanted.name, msgspec.json.encode(wanted), version):
                return wanted

    async def pause(self, name: str) -> Schedule:
        """Make no more runs until it is resumed."""
        return await self._change(name, paused=True)

    async def resume(self, name: str) -> Schedule:
        """Make its runs again, from now on: those of the pause are not made up for."""
        kept, _ = await self._one(name)
        following = schedule.next_after(kept.rule, await self._app.now()) if kept.paused else kept.next
        return await self._change(name, paused=False, next=following)

    async def run_now(self, name: str) -> Handle[Any]:
        """Enqueue it once, beside its usual runs."""
        kept, _ = await self._one(name)
        return await self._app.submit(kept.task, bytes(kept.payload), json=True, **_options(kept))

    async def delete(self, name: str) -> None:
        """Forget it; jobs that it made stay."""
        await self._one(name)
        await self._app.put_record(KIND, name, None)

    async def make_due_runs(self) -> float | None:
        """Enqueue whatever is due; seconds until something is due next, None where nothing ever is."""
        soonest: int | None = None
        now = await self._app.now()
        for kept, version in await self._all():
            if kept.paused or kept.next is None:
                continue
            following = kept.next if kept.next > now else await self._make_one(kept, version, now)
            if following is not None:
                soonest = following if soonest is None else min(soonest, following)
        return None if soonest is None else max(0.0, (soonest - now) / 1_000_000)

    # -- inside

    async def _make_one(self, kept: Schedule, version: int, now: int) -> int | None:
        """Make one schedule's runs; whatever is wrong with it harms no other. When it is due next."""
        try:
            return (await self._make(kept, version, now)).next
        except StoreUnavailable:
            raise
        except Exception:
            if (kept.name, version) not in _told:
                _told.add((kept.name, version))
                logger.exception("schedule %s: its runs cannot be made", kept.name)
            return None

    async def _make(self, kept: Schedule, version: int, now: int) -> Schedule:
        assert kept.next is not None
        last, last_job = kept.last, kept.last_job
        for due in schedule.runs_due(kept.rule, kept.next, now):
            if kept.rule.overlap == "skip" and last_job is not None and not await self._ended(last_job):
                logger.info("schedule %s: no run at %s, job %s has not ended", kept.name, _time(due), last_job)
                continue
            try:
                last_job = await self._enqueue(kept, due)
            except OutcomeUnknown:
                return kept  # the next look makes the same run again
            last = due
        moved = msgspec.structs.replace(kept, next=schedule.next_after(kept.rule, now), last=last, last_job=last_job)
        await self._app.put_record(KIND, kept.name, msgspec.json.encode(moved), version)
        return moved

    async def _enqueue(self, kept: Schedule, due: int) -> str | None:
        options = _options(kept) | {"key": f"schedule/{kept.name}/{due}", "meta": {"schedule": kept.name}}
        later = schedule.put_off(kept.rule, kept.name, due)
        try:
            handle = await self._app.submit(
                kept.task, bytes(kept.payload), json=True, **options, at=None if later <= due else _time(later)
            )
        except KeyConflict as error:
            return error.job_id  # made with what the schedule said before it was changed
        except (InvalidJob, QueueFull) as error:
            logger.warning("schedule %s: the run of %s could not be made: %s", kept.name, _time(due), error)
            return kept.last_job
        return handle.id

    async def _ended(self, id: str) -> bool:
        try:
            return (await self._app.record(id)).state in TERMINAL
        except JobNotFound:
            return True

    async def _all(self) -> list[tuple[Schedule, int]]:
        found = [(read(kept.value), kept.version) for _, kept in sorted((await self._app.records(KIND)).items())]
        return [(kept, version) for kept, version in found if kept is not None]

    async def _one(self, name: str) -> tuple[Schedule, int]:
        record = (await self._app.records(KIND)).get(name)
        kept = None if record is None else read(record.value)
        if record is None or kept is None:
            raise ScheduleNotFound(name)
        return kept, record.version

    async def _change(self, name: str, **fields: Any) -> Schedule:
        while True:
            kept, version = await self._one(name)
            changed = msgspec.structs.replace(kept, **fields)
            if await self._app.put_record(KIND, name, msgspec.json.encode(changed), version):
                return changed


def read(value: bytes) -> Schedule | None:
    """A schedule as it is kept; None for what cannot be read."""
    try:
        kept = _decode(value)
        schedule.checked(kept.rule)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidJob):
        return None  # written by a newer version, which makes its runs; or by somebody who should not have
    return kept


def made_rule(
    cron: str | None,
    every: float | timedelta | None,
    *,
    tz: str,
    catch_up: int,
    jitter: float | timedelta,
    overlap: str,
) -> Rule:
    """The rule that these say."""
    return Rule(
        cron=cron,
        tz=tz,
        every=None if every is None else checked_seconds(every, "every", positive=True),
        catch_up=catch_up,
        jitter=checked_seconds(jitter, "jitter"),
        overlap=overlap,
    )


def _options(kept: Schedule) -> dict[str, Any]:
    return {
        "queue": kept.queue,
        "priority": kept.priority,
        "max_attempts": kept.max_attempts,
        "timeout": kept.timeout,
        "retry": kept.retry,
        "tags": kept.tags,
        "expires": kept.expires,
    }


def _time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)
