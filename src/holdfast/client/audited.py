"""Marks a method as an operator action: every call of it, from every surface, has an entry in the audit log."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec

from ..core.errors import (
    ConfigError,
    HoldfastError,
    InvalidJob,
    InvalidState,
    JobNotFound,
    KeyConflict,
    OutcomeUnknown,
    QueueFull,
    ScheduleNotFound,
    WorkerNotFound,
)
from ..core.lifecycle import storable
from ..core.url import redact
from ..observe.actors import IDS_LIMIT, Action, Actor, action, current_actor
from ..observe.events import ActionEvent
from .audit_log import RENEW, AuditLog, Begun
from .runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
logger = logging.getLogger("holdfast")
REFUSED = (InvalidJob, InvalidState, JobNotFound, KeyConflict, QueueFull, ScheduleNotFound, WorkerNotFound, ConfigError)
"""Errors after which nothing was done."""
ENTRY_TEXT = 1000
"""Maximum characters of an error, and of one argument."""
HIDDEN = frozenset({"args", "payload", "meta", "value"})
"""Arguments that an entry only counts as given: they may contain what jobs contain."""
NAMES = {"wanted": "filter"}
"""Arguments that an entry names differently."""
ACTIONS: dict[str, str] = {}
"""Every operator action, with the function that makes it."""


def audited(
    name: str, *, shown: tuple[str, ...] = ()
) -> Callable[
    [Callable[Concatenate[S, P], Coroutine[Any, Any, R]]], Callable[Concatenate[S, P], Coroutine[Any, Any, R]]
]:
    """Makes an async method of a service (with the app's `Runtime` as `_runtime`) an operator action of this name.

    An action that is part of another has no separate entry. `shown`: arguments that are shown, though `HIDDEN`.
    """

    def mark(
        method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
    ) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if action.get() is not None or kwargs.get("dry_run"):
                return await method(self, *args, **kwargs)
            try:
                given = signature.bind(self, *args, **kwargs).arguments
            except TypeError:  # the call itself raises it, with the right name
                return await method(self, *args, **kwargs)
            runtime = cast("Runtime", self._runtime)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            target = _target(dict(given), HIDDEN.difference(shown))
            return await _Recorded(runtime, name, target).run(lambda: method(self, *args, **kwargs))

        vars(call)["audited"] = name
        ACTIONS[name] = f"{method.__module__}.{method.__qualname__}"
        return call

    return mark


class _Recorded:
    """One action with its entry."""

    def __init__(self, runtime: Runtime, name: str, target: dict[str, Any]) -> None:
        self._events = runtime.events
        self._log = AuditLog(runtime)
        self._name = name
        self._target = target

    async def run(self, act: Callable[[], Coroutine[Any, Any, R]]) -> R:
        actor = current_actor()
        begun = await self._log.begin(self._name, actor, self._target)
        now = Action()
        before = action.set(now)
        over = asyncio.Event()
        renewing = None if begun is None else asyncio.create_task(self._renew(begun, over))
        try:
            result = await act()
        except Exception as error:
            await _finished(renewing, over)
            count = _count(None, now)
            outcome, text = _failure(error, changed=bool(count))
            await self._ended(actor, begun, now, outcome, count=count, error=storable(text[:ENTRY_TEXT]))
            raise
        finally:
            action.reset(before)
            over.set()
        await _finished(renewing, over)
        outcome, text = ("done", None) if now.error is None else ("failed", storable(now.error[:ENTRY_TEXT]))
        await self._ended(actor, begun, now, outcome, count=_count(result, now), error=text)
        return result

    async def _renew(self, begun: Begun, over: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW):
                    await over.wait()
            if over.is_set():
                return
            with suppress(HoldfastError):  # the next one may be written
                await self._log.renew(begun)

    async def _ended(
        self,
        actor: Actor,
        begun: Begun | None,
        now: Action,
        outcome: str,
        *,
        count: int | None = None,
        error: str | None = None,
    ) -> None:
        if begun is not None:
            try:
                fields = {"outcome": outcome, "count": count, "error": error, "before": now.before, "left": now.left}
                jobs, versions = now.jobs, now.versions
                await self._log.end(begun, target=self._target | now.target, jobs=jobs, versions=versions, **fields)
            except HoldfastError as trouble:
                logger.warning(
                    "the outcome of action %s (%s) was not stored, so its audit entry %s shows it as interrupted: %s",
                    self._name,
                    outcome,
                    begun.name,
                    trouble,
                )
        about = next((str(value) for value in self._target.values()), None)
        id = None if begun is None else begun.name
        self._events.acted(
            ActionEvent("operator_action", self._name, actor.name, actor.surface, outcome, about, count, error, id)
        )


async def _finished(renewing: asyncio.Task[None] | None, over: asyncio.Event) -> None:
    """Wait until no renewal is in flight: written after the outcome, it would replace it."""
    over.set()
    if renewing is not None:
        await asyncio.wait([renewing])


def _failure(error: Exception, *, changed: bool) -> tuple[str, str]:
    """The outcome of an action that raised, and the text of its error."""
    if not isinstance(error, HoldfastError):
        return "failed", f"{type(error).__name__}: {error}"
    if isinstance(error, OutcomeUnknown):
        return "unknown", str(error)
    return "refused" if isinstance(error, REFUSED) and not changed else "failed", str(error)


def _count(result: Any, now: Action) -> int | None:
    """How many jobs an action has changed: as it returned, else those that it has noted."""
    changed = getattr(result, "changed", result)
    if isinstance(changed, int) and not isinstance(changed, bool):
        return changed
    return now.changed or None


def _target(given: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    """The arguments of a call as JSON: those that were given, without secrets, each shortened."""
    _, *names = given
    found: dict[str, Any] = {}
    for name in names:
        value = given[name]
        if value is None or value == () or value is False or callable(value):
            continue
        if name in ("options", "target") and isinstance(value, dict):  # **kwargs
            found.update(_target({"self": None, **cast("dict[str, Any]", value)}, hidden))
        elif (described := getattr(value, "audit_target", None)) is not None:
            found.update(described())
        else:
            found[NAMES.get(name, name)] = "given" if name in hidden else _shortened(name, value)
    return found


def _shortened(name: str, value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return storable((redact(value) if name == "url" else value)[:ENTRY_TEXT])
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple | set | frozenset):
        some = [_shortened(name, one) for one in cast("list[Any]", list(value))]  # pyright: ignore[reportUnknownArgumentType]
        return some if len(some) <= IDS_LIMIT else [*some[:IDS_LIMIT], f"… {len(some) - IDS_LIMIT} more"]
    if isinstance(value, msgspec.Struct):
        return {
            field: _shortened(field, part)
            for field in value.__struct_fields__
            if (part := getattr(value, field)) is not None and field not in HIDDEN
        }
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return storable(str(value)[:ENTRY_TEXT])
