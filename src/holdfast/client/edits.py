"""Edits of a waiting job, and clones of any job, checked like an enqueue: arguments, signature, sizes, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from ..codec import check_json
from ..core import internal as extra
from ..core import lifecycle
from ..core.clock import MICROS
from ..core.damage import damage_of
from ..core.errors import InvalidJob, InvalidState, QueueFull
from ..core.job import LimitKey, Record, State
from ..core.operations import Change, Patch
from ..core.validation import RESERVED
from ..observe.actors import note_target
from ..tasks.handle import Handle
from ..tasks.options import EDITED, EditOptions, JobOptions, Options, name_of_codec
from ..tasks.registry import CALL_TASK, Registry
from ..views import Job, job_view, limits_of, moment
from .audited import audited
from .enqueue import Enqueue
from .operations import Operations
from .runtime import Runtime, on_app_loop
from .session import Session

DEPTH_STATES = (State.QUEUED, State.SCHEDULED, State.FAILED)
"""Jobs that count for `max_depth`."""
Args = Sequence[Any] | Mapping[str, Any]
"""The arguments of a job: a list, or an object of named arguments."""
COPIED = ("queue", "priority", "max_attempts", "timeout", "retry", "tags")
"""Options that a clone gets from its original, besides task, arguments, meta, `stall_timeout` and limit."""


class Edits:
    """Edits and clones jobs."""

    def __init__(self, runtime: Runtime, registry: Registry, enqueue: Enqueue, operations: Operations) -> None:
        self._runtime = runtime
        self._registry = registry
        self._enqueue = enqueue
        self._operations = operations

    @audited("edit")
    @on_app_loop
    async def edit(
        self,
        session: Session,
        id: str,
        options: EditOptions,
        *,
        args: Args | None = None,
        payload: bytes | None = None,
    ) -> Job:
        """Give a waiting job other arguments (all of them), another time, priority or queue.

        InvalidState if it has started or ended. `payload`: the arguments as JSON text, instead of `args`.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if unknown := given.keys() - EDITED:
            raise InvalidJob(
                f"{', '.join(sorted(unknown))} cannot be edited, only {', '.join(EDITED)} and args; clone the job"
            )
        if not given and args is None and payload is None:
            raise InvalidJob(f"nothing to edit: give args=, {', '.join(f'{name}=' for name in EDITED)}")
        chosen = Options().changed(cast("JobOptions", given))
        if chosen.queue is not None:
            await _refuse_full(session, id, chosen.queue)
        now = await session.store.now()
        timed = not given.keys().isdisjoint(("at", "delay"))
        delay = chosen.delay if chosen.run_at is None else max(0.0, (chosen.run_at - now) / MICROS)

        def decide(record: Record) -> Change:
            change = lifecycle.edit(record, Patch(), delay if timed else None)  # first: whether it may be edited at all
            data = self._payload(record, args, payload)
            parts: dict[str, Any] = {}
            if data is not None:
                parts["payload"] = data
            if chosen.queue is not None:
                parts["queue"] = chosen.queue
            if chosen.priority is not None:
                parts["priority"] = chosen.priority
            self._check(session, record, parts)
            for limit, what in (
                (lifecycle.start_limit(record), "it expires"),
                (extra.deadline(record), "its deadline is"),
            ):
                if timed and limit is not None and now + int(delay * MICROS) >= limit:
                    raise InvalidJob(
                        f"job {id!r} was not edited: {what} at {moment(limit)}, before this time; use an earlier time"
                    )
            return lifecycle.edit(record, Patch(**parts), delay if timed else None) if parts else change

        await self._operations.change(session, id, decide, edited=True)
        return job_view(await session.record(id))

    @audited("clone")
    @on_app_loop
    async def clone(
        self,
        session: Session,
        id: str,
        options: JobOptions,
        *,
        args: Args | None = None,
        payload: bytes | None = None,
    ) -> Handle[Any]:
        """Enqueue a new job like this one, in any state, with edits: other arguments, and the options of `using`.

        It has the task, arguments, queue, priority, attempts, timeouts, limit, tags and meta of the original, and
        `cloned_from` in its meta; not its key, expiry, deadline, time, flow and follow-ups.
        """
        record = await session.record(id)
        self._refuse_internal(record, "cloned")
        data = self._payload(record, args, payload)
        if data is None and extra.read(record.extra).holes:
            raise InvalidJob(f"job {id!r} was not cloned: its arguments contain results of other jobs; give args=")
        if data is None and (damaged := damage_of(record)):
            raise InvalidState(
                id, record.state, f"its stored data cannot be decoded ({', '.join(damaged)}); enqueue a new job"
            )
        of_original = {name: getattr(record, name) for name in COPIED}
        of_original["stall_timeout"] = extra.read(record.extra).stall_timeout
        meta = {
            name: value for name, value in record.meta.items() if value is not None and not name.startswith(RESERVED)
        }
        copied = Options().changed(cast("JobOptions", {**of_original, "meta": meta}))
        chosen = copied.changed(options)
        chosen = msgspec.structs.replace(chosen, meta={**chosen.meta, "cloned_from": id})
        if chosen.connection is not None:
            raise InvalidJob("a clone takes no connection=: enqueue the task in your transaction instead")
        made = self._enqueue.make(
            session.fresh_settings(), record.task, record.payload if data is None else data, record.codec, chosen
        )
        if made.limit_key is None and chosen.limit is None:
            edits = {} if data in (None, record.payload) else {"payload": data}  # the dashboard always sends them
            limit_key = self._kept_limit(record, made.queue, edits)
            made = msgspec.structs.replace(made, limit_key=limit_key)
        new = await self._enqueue.insert(made, chosen)
        note_target(job=new)
        return self._enqueue.handles.handle(new)

    def _payload(self, record: Record, args: Args | None, payload: bytes | None) -> bytes | None:
        """The checked payload of new arguments; None if there are none."""
        if args is not None and payload is not None:
            raise InvalidJob("give either args= or payload=, not both")
        if args is None and payload is None:
            return None
        self._refuse_internal(record, "edited")
        what = f"job {record.id!r} of task {record.task!r:.150}"
        if payload is not None:
            if record.codec != "json":
                raise InvalidJob(
                    f"{what}: its arguments are stored as {record.codec!r}, so JSON cannot replace them;"
                    " enqueue another job"
                )
            check_json(payload, f"{what}: the payload")
            task = self._registry.tasks.get(record.task)
            if task is not None and not task.built_in:
                task.stored_as("json").decode(payload)
            return payload
        positional, named = _arguments(args)
        if record.codec != "cloudpickle":
            task = self._registry.call(record.task, (), {}).task.stored_as(record.codec)
            if record.codec == ("json" if task.codec is None else name_of_codec(task.codec)):
                return task.encode(positional, named)
        raise InvalidJob(
            f"{what}: its arguments are stored as {record.codec!r}, which args= cannot replace; enqueue another job"
        )

    def _check(self, session: Session, record: Record, parts: Mapping[str, Any]) -> None:
        """Refuse an edit that an enqueue would refuse, or that would change the limit key of the job."""
        if not parts:
            return
        self._refuse_internal(record, "edited")
        if "payload" in parts and extra.read(record.extra).holes:
            raise InvalidJob(
                f"job {record.id!r} was not edited: its arguments contain results of other jobs; clone it with args="
            )
        if "payload" not in parts and "queue" not in parts:
            return
        payload, queue = parts.get("payload", record.payload), parts.get("queue", record.queue)
        made = self._enqueue.make(
            session.fresh_settings(), record.task, payload, record.codec, Options(queue=queue, max_attempts=0)
        )
        if record.task not in self._registry.tasks and made.limit_key is None:
            self._refuse_limited(record, parts, "edited")
        elif _name(made.limit_key) != _name(record.limit_key):
            raise InvalidJob(
                f"job {record.id!r} was not edited: a waiting job cannot change its limit; clone it with these edits,"
                " then cancel it"
            )

    def _kept_limit(self, record: Record, queue: str, edits: Mapping[str, Any]) -> LimitKey | None:
        """The limit key that a clone has from its original, where neither its task nor its queue gives it one here."""
        kept = record.limit_key
        if kept is None:
            return None
        if record.task not in self._registry.tasks:
            self._refuse_limited(record, edits, "cloned")
            return kept
        [info] = limits_of(kept)
        if info.name == f"#{record.queue}" and queue != record.queue:  # the limit of that queue
            return None
        if edits and info.key is not None:
            raise InvalidJob(
                f"job {record.id!r} was not cloned: it was enqueued with a limit= of its own, whose key may depend on"
                " the arguments: give limit= in Python, or enqueue a new job"
            )
        return kept

    def _refuse_limited(self, record: Record, parts: Mapping[str, Any], done: str) -> None:
        if parts and record.limit_key is not None:
            raise InvalidJob(
                f"job {record.id!r} was not {done}: it has a limit, which may depend on its arguments and queue, and"
                f" task {record.task!r} is not registered here: use an app that has it, as with -A module:app"
            )

    def _refuse_internal(self, record: Record, done: str) -> None:
        internal = record.task.startswith(RESERVED) and record.task != CALL_TASK
        if internal or extra.is_flow(record):
            raise InvalidJob(f"job {record.id!r} was not {done}: its task {record.task!r} is internal to Holdfast")


def _name(limit_key: Any) -> str | None:
    return None if limit_key is None else limit_key.name


def _arguments(args: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(args, Mapping):
        named = cast("Mapping[Any, Any]", args)
        if all(isinstance(name, str) for name in named):
            return (), dict(named)
    elif isinstance(args, Sequence) and not isinstance(args, str | bytes | bytearray):
        return tuple(cast("Sequence[Any]", args)), {}
    kind = type(cast("object", args)).__name__
    raise InvalidJob(f"args= must be a list of arguments, or an object of named ones, not {kind}")


async def _refuse_full(session: Session, id: str, queue: str) -> None:
    """QueueFull for a job that would move into a full queue. Counted before the write: a few may exceed the limit."""
    limit = session.fresh_settings().max_depth
    if limit is None or (await session.record(id)).queue == queue:
        return
    counts = next((one.counts for one in await session.store.stats() if one.name == queue), dict[str, int]())
    if sum(counts.get(state, 0) for state in DEPTH_STATES) >= limit:
        raise QueueFull(queue, limit)
