"""Operator actions through the store protocol: every write that needs the role `operate` is in the audit log.

1. An action of a client (`client/audited.py`) writes its entry through the same routes. The server adds the sender to
   the actor that the client gives; writes of the same sender before the entry has an outcome belong to it.
2. A write outside of an action gets an entry of its own, `store.write`.
3. Replacing the arguments of a waiting job is part of an enqueue, which has no entry.

The server knows the entries that it has received: after its restart, or between several servers, the writes of an
action can have an entry of their own, too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from ..client.audit_log import ENTRIES, INTERRUPTED_AFTER, decoded
from ..client.audited import audited
from ..client.runtime import Runtime
from ..core.lifecycle import replaces
from ..core.operations import Change
from ..observe.actors import current_actor, named
from ..store.worker_writes import RecordKind, RecordWrite

A = TypeVar("A")


class OperatorWrites:
    """The audit of one server's store routes. The sender is the current actor."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[str, dict[str, float]] = {}
        """By the sender's name: its entries without an outcome, and when each was last written (monotonic clock)."""

    async def change(self, changes: Sequence[Change], write: Callable[[], Coroutine[Any, Any, A]]) -> A:
        """Make a write with these changes, which workers do not make."""
        described = [_described(change) for change in changes if not replaces(change)]
        return await (write() if not described or self._acts() else self._recorded(write, changes=described))

    async def put(self, record: RecordWrite, write: Callable[[], Coroutine[Any, Any, A]]) -> A:
        """Write a record that workers do not write."""
        if self._acts():
            return await write()
        return await self._recorded(write, kind=record.kind, name=record.name, remove=record.value is None)

    @audited("store.write")
    async def _recorded(self, write: Callable[[], Coroutine[Any, Any, A]], **target: Any) -> A:  # noqa: ARG002  # in the entry
        return await write()

    def _acts(self) -> bool:
        """Whether the sender is in the middle of an action."""
        name, limit = current_actor().name, self._runtime.clock.monotonic() - INTERRUPTED_AFTER
        mine = {entry: at for entry, at in self._open.pop(name, {}).items() if at > limit}
        if mine:
            self._open[name] = mine
        return bool(mine)

    def stamped(self, kind: RecordKind, write: RecordWrite) -> RecordWrite:
        """The write of an entry, with its sender; any other write unchanged."""
        if kind.kind != ENTRIES or write.value is None or (entry := decoded(write.value)) is None:
            return write
        actor = named(f"{current_actor().name}: {entry.actor}", "").name
        return msgspec.structs.replace(write, value=msgspec.structs.replace(entry, actor=actor).encoded())

    def follow(self, kind: RecordKind, write: RecordWrite) -> None:
        """A record was written: from an entry without an outcome on, its sender acts."""
        if kind.kind != ENTRIES or write.value is None or (entry := decoded(write.value)) is None:
            return
        mine = self._open.setdefault(current_actor().name, {})
        if entry.outcome is None:
            mine[write.name] = self._runtime.clock.monotonic()
        else:
            mine.pop(write.name, None)


def _described(change: Change) -> dict[str, Any]:
    """A change of a job, for the audit log: which fields it sets, without their values."""
    patch: dict[str, Any] = {} if change.patch is None else msgspec.to_builtins(change.patch)
    state = "deleted" if change.patch is None else patch.get("state", change.expected_state)
    return {"id": change.id, "before": change.expected_state, "state": state, "fields": sorted(patch)}
