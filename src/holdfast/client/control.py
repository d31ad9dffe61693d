"""Remote control of workers: requests to live workers, as shared records, and their answers.

1. A request is a record of kind `control`, named `WORKER/REQUEST`. Writing it notifies the worker (`holder/WORKER`);
   without a notification, the worker reads it after its next heartbeat.
2. The worker takes a request by removing the record, with its version, before it acts. So a request that was withdrawn
   is not applied, and a request that was not withdrawn in time may have been.
3. The answer is a record of kind `control_reply`, named as the request. The client removes it.
4. Maintenance removes requests to workers that have ended, and answers that no client has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

import msgspec

from ..core.errors import HoldfastError, InvalidJob, OutcomeUnknown, StoreUnavailable, WorkerNotFound
from ..core.job import UNDECODABLE
from ..core.settings import MAX_CONCURRENCY, parse
from ..core.validation import checked_seconds, checked_text
from ..observe.actors import note_error, note_target
from ..store.protocol import CONTROL, CONTROL_REPLY, Store, Versioned, holder_in, records_of
from ..store.worker_writes import RecordKind, RecordWrite, WorkerWrites
from ..views import WorkerInfo, worker_info
from .audited import audited
from .inspection import Inspection
from .runtime import Runtime, on_app_loop

if TYPE_CHECKING:
    from .session import Session

ACTIONS = ("quiet", "resume", "drain", "stop", "restart", "concurrency", "stacks")
CONTROL_KINDS = CONTROL, CONTROL_REPLY
MAX_WAIT = 60.0
"""Seconds to wait for a heartbeat, however long the lease of a worker is."""
ANSWER_MARGIN = 5.0
"""Seconds for an answer, beyond the time to the worker's next heartbeat."""
MAX_TARGETS = 1000
"""Workers of one call."""
WRITES_AT_ONCE = 50
"""Requests that are written at the same time."""
REPLY_KEPT = 600.0
"""Seconds for which a process must have seen an answer before it removes it."""
REPLY_BYTES = 512 * 1024
"""Maximum size of an answer."""
SAME_VERSION = "use the same version of Holdfast in the worker and the client"


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker is asked to do."""

    action: str
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_CONCURRENCY)] | None = None
    """The new concurrency."""
    now: bool = False
    """A stop releases running jobs at once."""


class Stack(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a thread or an asyncio task is: frames, without the values of variables."""

    kind: str
    """`thread` or `task`; `process`: a job in a process of its own."""
    name: str
    frames: tuple[str, ...]
    """The outermost first, as in a traceback."""
    job: str | None = None
    """The job that runs in it; of a batch, its first job."""
    task: str | None = None
    """The task of that job."""


class ControlReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of one worker, or why there is none."""

    worker: str
    action: str
    error: str | None = None
    """Why the request was not applied, or may not have been; None: the worker has accepted it."""
    state: str = ""
    """The state of the worker from now on: active, quiet, draining or stopping."""
    slots: int = 0
    """Its concurrency from now on."""
    stacks: tuple[Stack, ...] = ()
    left_out: int = 0
    """Stacks beyond the maximum size of an answer."""


class Target(TypedDict, total=False):
    """Which workers a request is for, besides those named by id; each given part must match."""

    host: str | None
    """All live workers of this node."""
    version: str | None
    """All live workers with this release of the application, or version of Holdfast."""
    all_workers: bool
    """All live workers of the store."""
    timeout: float | None
    """Seconds to wait for the answers; None: until after the next heartbeat of each worker."""


decode_request = msgspec.json.Decoder(Request).decode
decode_reply = msgspec.json.Decoder(ControlReply).decode
encode = msgspec.json.Encoder().encode


async def _taken(_store: Store, write: RecordWrite) -> bool:
    """A worker takes a request by removing it; it makes none."""
    return write.value is None and write.expect is not None


async def _answers(_store: Store, write: RecordWrite) -> bool:
    if write.value is None:
        return False
    try:
        # "": the answer to a request that cannot be decoded.
        return len(write.value) <= REPLY_BYTES and decode_reply(write.value).action in ("", *ACTIONS)
    except UNDECODABLE:
        return False


WRITES = WorkerWrites(
    records=(
        RecordKind(CONTROL, worker=_taken, for_holder=True),
        RecordKind(CONTROL_REPLY, worker=_answers, for_holder=True, worker_reads=False),
    )
)


class Workers:
    """The live workers of all machines: called, it lists them; each method requests something of them.

    A request returns one answer per worker, by worker id. WorkerNotFound, before anything is stored, if a named worker
    is not alive or no live worker matches.
    """

    def __init__(self, runtime: Runtime, inspection: Inspection) -> None:
        self._runtime = runtime
        self._inspection = inspection

    async def __call__(self) -> list[WorkerInfo]:
        """The live workers (and manual claims), by node and pid."""
        return await self._inspection.workers()

    async def quiet(self, *workers: str, **target: Unpack[Target]) -> list[ControlReply]:
        """Claim no more jobs; running jobs continue. It ends with `resume`, or with the process."""
        return await self.send(Request("quiet"), workers, **target)

    async def resume(self, *workers: str, **target: Unpack[Target]) -> list[ControlReply]:
        """Claim jobs again, after `quiet` or `drain`."""
        return await self.send(Request("resume"), workers, **target)

    async def drain(self, *workers: str, **target: Unpack[Target]) -> list[ControlReply]:
        """Claim no more jobs, and stop once no job runs. The supervisor starts no other process for it."""
        return await self.send(Request("drain"), workers, **target)

    async def stop(self, *workers: str, now: bool = False, **target: Unpack[Target]) -> list[ControlReply]:
        """Stop, with the worker's grace period for running jobs; `now`: release them at once.

        The supervisor starts no other process for it, and kills it if it does not stop in time.
        """
        return await self.send(Request("stop", now=now), workers, **target)

    async def restart(self, *workers: str, **target: Unpack[Target]) -> list[ControlReply]:
        """Stop as `stop` does; the supervisor starts another process. Refused by a worker without a supervisor."""
        return await self.send(Request("restart"), workers, **target)

    async def concurrency(self, size: int, *workers: str, **target: Unpack[Target]) -> list[ControlReply]:
        """Run up to `size` jobs at a time, until the process ends; running jobs above it continue."""
        return await self.send(Request("concurrency", size=parse("concurrency", size)), workers, **target)

    async def stacks(self, *workers: str, **target: Unpack[Target]) -> list[ControlReply]:
        """Where the threads, asyncio tasks and processes of a worker are: frames, without the values of variables."""
        return await self.send(Request("stacks"), workers, **target)

    @audited("worker.control")
    @on_app_loop
    async def send(
        self, session: Session, request: Request, workers: Sequence[str], /, **target: Unpack[Target]
    ) -> list[ControlReply]:
        """Send a request to live workers, and wait for their answers."""
        found = await _selected(session, workers, target)
        note_target(workers=[one.id for one in found])
        given = target.get("timeout")
        heartbeat = min(MAX_WAIT, max(one.lease for one in found) / 3)
        timeout = heartbeat + ANSWER_MARGIN if given is None else checked_seconds(given, "timeout")
        replies = await _Exchange(session, request, found).run(timeout)
        if failed := [one.error for one in replies if one.error is not None]:
            note_error(f"{len(failed)} of {len(replies)} workers: {failed[0]}")
        return sorted(replies, key=lambda one: one.worker)


async def _selected(session: Session, ids: Sequence[str], target: Target) -> list[WorkerInfo]:
    host, version, everyone = target.get("host"), target.get("version"), target.get("all_workers", False)
    if not ids and host is None and version is None and not everyone:
        raise InvalidJob("no request was sent: name its workers by their ids, host=, version= or all_workers=")
    if everyone and (ids or host is not None or version is not None):
        raise InvalidJob("no request was sent: for all workers, give no ids, host= or version=")
    wanted = [checked_text(id, "a worker's id") for id in ids]
    live = [worker_info(one) for one in await session.store.holders() if one.alive and one.holder.kind == "worker"]
    if missing := sorted(set(wanted) - {one.id for one in live}):
        raise WorkerNotFound(
            f"no request was sent: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not the id of a live"
            " worker; `holdfast worker list` shows them"
        )
    found = [
        one
        for one in live
        if (not wanted or one.id in wanted)
        and host in (None, one.node)
        and version in (None, one.release or None, one.version)
    ]
    if not found:
        parts = {"host": host, "version": version}
        asked = ", ".join(f"{name} {value!r}" for name, value in parts.items() if value is not None)
        raise WorkerNotFound(
            f"no request was sent: no live worker{f' has {asked}' if asked else ''}; `holdfast worker list` shows them"
        )
    if len(found) > MAX_TARGETS:
        raise InvalidJob(f"no request was sent: {len(found)} workers match, over {MAX_TARGETS}; select fewer by host=")
    return found


class _Exchange:
    """The requests of one call, and their answers."""

    def __init__(self, session: Session, request: Request, workers: Iterable[WorkerInfo]) -> None:
        self._session = session
        self._store = session.store
        self._request = request
        now = session.clock.now()
        self._open = {f"{one.id}/{session.entropy.uuid7(now)}": one.id for one in workers}
        """The workers that have not answered yet, by the name of their request."""
        self._replies: list[ControlReply] = []

    async def run(self, timeout: float) -> list[ControlReply]:
        """Send all requests, and wait for the answers for at most `timeout` seconds; withdraw them if cancelled."""
        try:
            await self._answered(timeout)
        except asyncio.CancelledError:
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(ANSWER_MARGIN):
                    await self._remove()
            raise
        if self._open:
            try:
                await self._withdraw(timeout)
            except HoldfastError as error:
                for name, worker in list(self._open.items()):
                    self._fail(name, f"whether worker {worker} applied the request is unknown: {error}")
        return self._replies

    async def _answered(self, timeout: float) -> None:
        session, loop = self._session, asyncio.get_running_loop()
        until = loop.time() + timeout
        listener = self._store.listen([f"record/{CONTROL_REPLY}"])
        try:
            names = list(self._open)
            for first in range(0, len(names), WRITES_AT_ONCE):
                await asyncio.gather(*map(self._send, names[first : first + WRITES_AT_ONCE]))
            while self._open:
                with suppress(StoreUnavailable, OutcomeUnknown):  # requests are on their way: the next read may work
                    await self._read()
                if not self._open or (left := until - loop.time()) <= 0:
                    break
                await session.wait(listener, min(left, session.settings.poll))
        finally:
            listener.close()

    async def _send(self, name: str) -> None:
        try:
            await self._store.put_record(CONTROL, name, encode(self._request), 0)
        except HoldfastError as error:  # says whether it was written
            self._fail(name, f"the request may not have reached worker {self._open[name]}: {error}")

    def _fail(self, name: str, error: str) -> None:
        self._replies.append(ControlReply(self._open.pop(name), self._request.action, error))

    async def _read(self) -> None:
        found = await records_of(self._store, CONTROL_REPLY)
        for name in self._open.keys() & found.keys():
            try:
                reply = decode_reply(found[name].value)
            except UNDECODABLE:
                said = (
                    f"the answer of worker {self._open[name]} cannot be decoded, so the request may have been applied"
                )
                reply = ControlReply(self._open[name], self._request.action, f"{said}; {SAME_VERSION}")
            self._replies.append(msgspec.structs.replace(reply, worker=self._open.pop(name)))
            with suppress(HoldfastError):  # maintenance removes it
                await self._store.put_record(CONTROL_REPLY, name, None)

    async def _remove(self) -> set[str]:
        """Remove the requests that no worker has taken; returns their names. The others may have been applied."""
        sent = await records_of(self._store, CONTROL)
        return {
            name
            for name in self._open
            if name in sent and await self._store.put_record(CONTROL, name, None, sent[name].version)
        }

    async def _withdraw(self, timeout: float) -> None:
        """Remove what is still there, and say of each worker without an answer what is known."""
        withdrawn = await self._remove()
        await self._read()
        live = {one.holder.id for one in await self._store.holders() if one.alive}
        for name, worker in list(self._open.items()):
            if worker not in live:
                rest = "the request was not applied" if name in withdrawn else "the request may have been applied"
                self._fail(name, f"worker {worker} ended before it answered; {rest}")
            elif name in withdrawn:
                self._fail(
                    name,
                    f"worker {worker} did not answer within {timeout:g} s; the request was withdrawn and not"
                    " applied: check that its process runs and reaches the store",
                )
            else:
                self._fail(
                    name,
                    f"worker {worker} took the request but did not answer within {timeout:g} s; it may have been"
                    " applied: see `holdfast worker list`",
                )


class ControlMaintenance:
    """Removes requests to workers that have ended, and answers that were not read for REPLY_KEPT seconds.

    The age of an answer is the time for which this process has seen it, whatever clocks say.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[str, tuple[int, float]] = {}
        """Answers by name: the version, and when it was first seen here (monotonic clock)."""

    async def run(self, found: Mapping[str, Mapping[str, Versioned]] | None = None) -> None:
        """Run once. `found`: the records of `CONTROL_KINDS`, if they were read just now."""
        store = self._session.store
        found = await store.records(CONTROL_KINDS) if found is None else found
        await self._remove_old(found[CONTROL_REPLY])
        if found[CONTROL]:
            live = {one.holder.id for one in await store.holders() if one.alive}
            for name, kept in found[CONTROL].items():
                if holder_in(name) not in live:
                    await store.put_record(CONTROL, name, None, kept.version)

    async def _remove_old(self, replies: Mapping[str, Versioned]) -> None:
        now, before = self._session.clock.monotonic(), self._seen
        self._seen = {
            name: seen if (seen := before.get(name, (0, now)))[0] == kept.version else (kept.version, now)
            for name, kept in replies.items()
        }
        for name, (version, since) in self._seen.items():
            if now - since >= REPLY_KEPT:
                await self._session.store.put_record(CONTROL_REPLY, name, None, version)
