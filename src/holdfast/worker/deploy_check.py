"""The deploy check: which waiting calls of a store the tasks of an app would not accept. Changes no data."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from ..core.errors import ConfigError, InvalidJob, StoreUnavailable, UnknownTask
from ..core.validation import error_text
from ..store.protocol import Existing, ListsCalls, Migrating, Store
from ..tasks.binding import bind, check_open
from .waiting_calls import waiting_calls

if TYPE_CHECKING:
    from ..core.operations import WaitingCall, WaitingCalls
    from ..tasks.registry import Registry

SAMPLES = 5
"""Ids that are kept of each group."""
TEXTS = 20
"""Error texts of one task that have separate groups; further ones share a group."""
OTHER = "other errors"


class RefusedCalls(msgspec.Struct):
    """Calls of one task that are refused for the same reason."""

    kind: str
    """`job`; `flow` for a job that takes results of other jobs; `follow_up` of a job; or `schedule`."""
    task: str
    reason: str
    """`unknown_task` or `arguments`; `broken` if no worker can run it, whatever its code."""
    error: str
    """The error of the worker."""
    count: int
    samples: list[str]
    """Ids of some of the jobs (for a follow-up, of the job before it), or names of the schedules."""


class Report(msgspec.Struct):
    """The result of a check."""

    checked: int = 0
    refused: int = 0
    open: int = 0
    """Checked jobs that take results which do not exist yet or are too large, and whose types were not checked."""
    not_checked: int = 0
    """Pickled calls whose arguments a server did not send: the token has no role `work`."""
    complete: bool = True
    """False: only the newest jobs were checked, as many as asked for."""
    groups: list[RefusedCalls] = []
    """Largest first."""


class DeployCheck:
    """Checks calls as a worker with these tasks would. `declared`: the schedules that it replaces when it starts."""

    def __init__(self, registry: Registry, declared: Collection[str] = ()) -> None:
        self._registry = registry
        self._declared = declared
        self._unknown: dict[str, Exception] = {}
        self._groups: dict[tuple[str, str, str, str], RefusedCalls] = {}
        self._texts: dict[str, set[str]] = {}
        self._checked = self._open = self._not_checked = 0

    def refusal(self, call: WaitingCall) -> Exception | None:
        """The error with which a worker refuses a call; None if it runs the task's function."""
        if call.schedule and call.id in self._declared:
            return None
        if call.broken is not None:
            return InvalidJob(call.broken)
        if (known := self._unknown.get(call.task)) is not None:
            return known
        try:
            task = self._registry.find(call.task)
        except Exception as error:  # noqa: BLE001  # the module of the task may raise anything
            self._unknown[call.task] = error
            return error
        if call.withheld:
            return None
        task = task.stored_as(call.codec)
        try:
            (check_open if call.open else bind)(task, call.payload)
        except Exception as error:  # noqa: BLE001  # so may a codec, or a type
            return error
        return None

    def add(self, call: WaitingCall) -> None:
        """Check a call and count it."""
        error = self.refusal(call)
        if call.withheld and error is None:
            self._not_checked += 1
            return
        self._checked += 1
        self._open += call.open
        if error is None:
            return
        kind = (
            "schedule" if call.schedule else "follow_up" if call.follow_up else "flow" if call.takes_results else "job"
        )
        reason = "unknown_task" if isinstance(error, UnknownTask) else "arguments" if call.broken is None else "broken"
        text, texts = error_text(error), self._texts.setdefault(call.task, set())
        if text not in texts and len(texts) >= TEXTS:
            text = OTHER
        texts.add(text)
        key = (kind, call.task, reason, text)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = RefusedCalls(*key, 0, [])
        group.count += 1
        if len(group.samples) < SAMPLES:
            group.samples.append(call.id)

    def report(self, *, complete: bool = True) -> Report:
        groups = sorted(self._groups.values(), key=lambda one: (-one.count, one.kind, one.task, one.error))
        refused = sum(one.count for one in groups)
        return Report(self._checked, refused, self._open, self._not_checked, complete, groups)


async def check(
    registry: Registry,
    store: Store,
    *,
    declared: Collection[str] = (),
    queue: str | None = None,
    limit: int | None = None,
) -> Report:
    """Check the schedules and waiting jobs of a store that is not open; `limit`: only so many jobs, the newest."""
    checking = DeployCheck(registry, declared)
    left = limit
    async with aclosing(_pages(store, queue)) as pages:
        async for page in pages:
            if page.store_id is not None:
                registry.store_id = page.store_id
            for call in page.calls:
                if left is not None and not (call.schedule or call.follow_up):
                    if left == 0:
                        return checking.report(complete=False)
                    left -= 1
                checking.add(call)
            if left == 0 and page.cursor is not None:
                return checking.report(complete=False)
    return checking.report()


async def _pages(store: Store, queue: str | None) -> AsyncGenerator[WaitingCalls]:
    if isinstance(store, ListsCalls):
        async with aclosing(store.waiting_calls(queue)) as pages:
            async for page in pages:
                yield page
        return
    if isinstance(store, Existing) and not await store.exists():
        raise StoreUnavailable("there is no store at this URL, and none was created: check the URL")
    if isinstance(store, Migrating) and (missing := await store.missing()):
        raise ConfigError(
            f"the store lacks the schema versions {', '.join(map(str, missing))}, and a check does not migrate it: run"
            " `holdfast migrate` first"
        )
    await store.open()
    try:
        cursor = None
        while True:
            page = await waiting_calls(store, queue, cursor)
            yield page
            if (cursor := page.cursor) is None:
                return
    finally:
        await store.close()
